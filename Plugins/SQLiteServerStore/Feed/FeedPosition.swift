import SalvorModel
import SalvorStorage
import SalvorWire

/// Where a download stands: everything a page needs besides the database and the principal. Opaque to clients.
struct FeedPosition {
  struct Group {
    var name: String
    /// The last entry of the change log that the group has; for a scanned one that of the start.
    var floor: Int64
    var isScanned: Bool
    /// `Catalog.digest` when the download began.
    var digest: String
    /// The digest of the scope that the cursor was made with, where the subscriptions have changed since: what they add
    /// and drop is looked for among the rows. Nil: the scope is the same, or the group is scanned.
    var had: String?
  }

  /// The head when the download began.
  var start: Commit
  var groups: [Group]
  /// The step of the scan, two for each table (by its place in the catalog: rows that come, rows that are dropped), and
  /// the key after which it goes on; nil: there is none left.
  var scan: (step: Int, after: Key)?
  /// The last entry of the change log that was fed.
  var fed: Int64

  var text: String {
    let json: JSONValue = [
      "start": .integer(start.number),
      "id": .string(start.id.text),
      "groups": .array(
        groups.map {
          .array([
            .string($0.name), .integer($0.floor), .bool($0.isScanned), .string($0.digest),
            $0.had.map(JSONValue.string) ?? .null,
          ])
        }),
      "scan": scan.map { .array([.integer(Int64($0.step)), .array($0.after.map { JSONValue($0) })]) } ?? .null,
      "fed": .integer(fed),
    ]
    return json.text
  }

  init(start: Commit, groups: [Group], scan: (step: Int, after: Key)?, fed: Int64) {
    self.start = start
    self.groups = groups
    self.scan = scan
    self.fed = fed
  }

  init(_ text: String) throws {
    let json = try JSONValue(parsing: Array(text.utf8))
    start = Commit(number: try json.integer("start"), id: try json.identifier("id"))
    groups = []
    for entry in try json.array("groups") {
      // One of a server from before subscriptions.
      if entry.array?.count == 4 { throw Self.outdated("the server has been updated since it began") }
      guard let items = entry.array, items.count == 5, let name = items[0].string, let floor = items[1].integer,
        let isScanned = items[2].bool, let digest = items[3].string
      else { throw Self.malformed }
      groups.append(Group(name: name, floor: floor, isScanned: isScanned, digest: digest, had: items[4].string))
    }
    fed = try json.integer("fed")
    if let place = try json.optionalArray("scan") {
      guard place.count == 2, let step = place[0].integer, step >= 0, let key = place[1].array else {
        throw Self.malformed
      }
      var values: Key = []
      for value in key {
        guard let value = value.rowValue else { throw Self.malformed }
        values.append(value)
      }
      scan = (Int(clamping: step), values)
    }
  }

  static var malformed: SalvorError {
    SalvorError(.malformed, "The position of the download is none that this server gave. Begin the download again.")
  }

  static func outdated(_ why: String) -> SalvorError {
    SalvorError(
      .inconsistentDownload, "This download cannot go on: \(why). Discard what is staged and begin it again.")
  }
}
