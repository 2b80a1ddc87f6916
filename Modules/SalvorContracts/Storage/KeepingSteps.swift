import SalvorModel
import SalvorStorage

/// What a person does with requests, in a random history. Requests are named by their place among those that there are: IDs
/// differ between stores.
enum KeepingStep: Sendable, CustomStringConvertible {
  case deleteArchive(Int)
  case deleteEntry(Int)
  case withdraw(Int)
  case deleteKept(Int)
  case deleteAllKept
  case retry(Int)
  case retryAll
  case reapply(Int)
  case optimise

  init(_ random: inout SeededGenerator) {
    let place = random.below(100)
    switch random.below(22) {
    case 0..<2: self = .deleteArchive(place)
    case 2..<7: self = .deleteEntry(place)
    case 7..<11: self = .withdraw(place)
    case 11: self = .deleteKept(place)
    case 12: self = .deleteAllKept
    case 13..<17: self = .retry(place)
    case 17: self = .retryAll
    case 20, 21: self = .optimise
    default: self = .reapply(place)
    }
  }

  var description: String {
    switch self {
    case .deleteArchive(let place): "deletes the archive, asked for entry \(place)"
    case .deleteEntry(let place): "deletes entry \(place) alone"
    case .withdraw(let place): "withdraws request \(place)"
    case .deleteKept(let place): "deletes kept entry \(place)"
    case .deleteAllKept: "deletes all kept entries"
    case .retry(let place): "sends entry \(place) again"
    case .retryAll: "sends all entries again"
    case .reapply(let place): "reapplies kept entry \(place)"
    case .optimise: "makes one of the requests on one row"
    }
  }
}
