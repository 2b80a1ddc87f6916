import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The command line of `salvor-bench`.
struct BenchOptions: Sendable {
  var only: [String] = []
  var isQuick = false
  var isQuiet = false
  var json = false
  var keep = false
  var list = false
  var help = false
  /// Measurements of each figure; medians are shown.
  var runs = 3
  /// The most rows of a workload; nil: as many as it is defined with.
  var rowsMax: Int?
  /// Where the databases are made: a directory on a disk.
  var directory = getenv("TMPDIR").map { String(cString: $0) } ?? "/var/tmp"
  /// The DineSafe files.
  var data = "Examples/dinesafe/data"
  /// Image files.
  var images = "Examples/images"

  static let usage = """
    usage: salvor-bench [--only NAME]… [--quick] [--rows N] [--runs N] [--json] [--quiet] [--dir DIR] [--data DIR] [--images DIR]
                        [--keep]
           salvor-bench --list | --help

      --only NAME  this workload, or those whose names begin with NAME- (postgresql, in a build with
                   --traits default,PostgreSQL); may be given several times
      --quick      a tenth of each size, one run: to see that it works, not to compare
      --rows N     at most so many rows in each workload (and changes), e.g. 100000: to try it, not to compare
      --runs N     measurements of each figure, medians are shown (3; capture at least 5)
      --json       one JSON object on standard output
      --quiet      nothing on standard error while it works
      --dir DIR    where the databases are made ($TMPDIR, or /var/tmp): a disk, not a memory file system
      --data DIR   the DineSafe files (Examples/dinesafe/data)
      --images DIR image files for blobs-796 (Examples/images, which has a few; its fetch.sh gets 796)
      --keep       leaves the databases there
      --list       the workloads

    """

  /// Throws `usage` and names what is wrong.
  init(_ arguments: [String]) throws {
    var runsGiven = false
    var rest = arguments[...]
    func value(_ option: String) throws -> String {
      guard let value = rest.popFirst() else { throw SalvorError(.usage, "\(option) needs a value.") }
      return value
    }
    while let argument = rest.popFirst() {
      switch argument {
      case "--only":
        let name = try value(argument)
        guard Workload.all.contains(where: { $0.isMeant(by: name) }) else {
          let names = Workload.all.map(\.name).joined(separator: ", ")
          throw SalvorError(.usage, "There is no workload \"\(name)\". The workloads are: \(names).")
        }
        only.append(name)
      case "--runs":
        guard let count = Int(try value(argument)), (1...100).contains(count) else {
          throw SalvorError(.usage, "--runs takes a number from 1 to 100.")
        }
        runs = count
        runsGiven = true
      case "--rows":
        guard let count = Int(try value(argument)), count >= 1000 else {
          throw SalvorError(.usage, "--rows takes a number from 1000 on.")
        }
        rowsMax = count
      case "--dir": directory = try value(argument)
      case "--data": data = try value(argument)
      case "--images": images = try value(argument)
      case "--quick": isQuick = true
      case "--quiet": isQuiet = true
      case "--json": json = true
      case "--keep": keep = true
      case "--list": list = true
      case "--help", "-h": help = true
      default: throw SalvorError(.usage, "Unknown argument \"\(argument)\". Try --help.")
      }
    }
    if isQuick, !runsGiven { runs = 1 }
  }
}
