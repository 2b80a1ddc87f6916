/// Who has had how much of what one does at a time, and who has to pause for it (decision 41).
///
/// Short turns are free: nobody waits long for one, and a principal may have a thousand devices. Of long ones, a principal may
/// have `allowanceMilliseconds` at once; of what goes beyond it, he has a tenth of the time while others come, and all of it
/// while nobody else does. So his long turns stand in the way of one in ten of the others', whatever he sends.
struct TurnAccounts {
  /// What of a turn is free.
  static let freeMilliseconds: Int64 = 20
  /// Before anybody pauses: an upload of some thousand rows.
  static let allowanceMilliseconds: Int64 = 500
  /// One millisecond of a turn is made up for by so many without one.
  static let pauseFactor: Int64 = 9
  /// Nobody pauses longer than this for one turn, however long it was.
  static let pauseMilliseconds: Int64 = 3_000
  /// Others come, where one has come within this time.
  static let othersMilliseconds: Int64 = 1_000
  private static let accountsMax = 1_000

  private struct Account {
    /// Nothing is to be made up for at this time and later; milliseconds since 1970.
    var evenAt: Int64
  }

  private var accounts: [String: Account] = [:]
  /// Who came last, and who came last of all others.
  private var last: (principal: String, time: Int64) = ("", .min)
  private var lastOther: Int64 = .min

  mutating func come(_ principal: String, at now: Int64) {
    if principal != last.principal { lastOther = last.time }
    last = (principal, now)
  }

  mutating func spend(_ milliseconds: Int64, of principal: String, at now: Int64) {
    let milliseconds = milliseconds - Self.freeMilliseconds
    guard milliseconds > 0 else { return }
    let evenAt = max(accounts[principal]?.evenAt ?? now, now) + milliseconds * Self.pauseFactor
    let latest = now + Self.allowanceMilliseconds * Self.pauseFactor + Self.pauseMilliseconds
    accounts[principal] = Account(evenAt: min(evenAt, latest))
    if accounts.count > Self.accountsMax { accounts = accounts.filter { $0.value.evenAt > now } }
  }

  func pauses(_ principal: String, at now: Int64) -> Bool {
    guard let account = accounts[principal] else { return false }
    let due = account.evenAt - now - Self.allowanceMilliseconds * Self.pauseFactor
    // A clock that was put back keeps nobody waiting for longer than this.
    guard due > 0, due <= Self.pauseMilliseconds else { return false }
    let others = last.principal == principal ? lastOther : last.time
    return others > now - Self.othersMilliseconds
  }
}
