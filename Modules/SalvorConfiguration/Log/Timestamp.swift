/// Milliseconds since 1970 as `2026-11-21 04:05:06` in UTC.
package func timestamp(_ milliseconds: Int64) -> String {
  var seconds = milliseconds / 1000
  let time = seconds % 86_400
  seconds /= 86_400
  // Days to a date of the Gregorian calendar, by eras of 400 years counted from 0000-03-01.
  let days = seconds + 719_468
  let era = days / 146_097
  let dayOfEra = days % 146_097
  let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
  let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
  let monthFromMarch = (5 * dayOfYear + 2) / 153
  let day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
  let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
  let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
  return "\(year)-\(two(month))-\(two(day)) \(two(time / 3600)):\(two(time / 60 % 60)):\(two(time % 60))"
}
