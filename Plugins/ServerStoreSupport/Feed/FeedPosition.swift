import SalvorModel
import SalvorStorage
import SalvorWire

/// Where a download stands: everything a page needs besides the database and the principal. Opaque to clients.
package struct FeedPosition {
  struct Group {
    var name: String
    /// The last entry of the change log that the group has; for a scanned one that of the start.
    var floor: Int64
    var isScanned: Bool
    /// `Catalog.digest` when the download began.
    var digest: String
    /// The digest of the scope that the cursor was made with, where the subscriptions have changed since.
    var had: String?
  }

  /// `Catalog.fingerprint` when the download began.
  var schema: String
  /// The head when the download began.
  var start: Commit
  var groups: [Group]
  /// The step of the scan, two for each table (by its place in the catalog: rows that come, rows that are dropped), and
  /// the key after which it goes on; nil: there is none left.
  var scan: (step: Int, after: Key)?
  /// The last entry of the change log that was fed.
  var fed: Int64
  /// By table: an own floor, whatever the group's is, because the device has compared the table, or gets it whole.
  var floors: [String: Floor] = [:]
  /// This remote's own commits up to this one are left out; nil: up to the start.
  var ownUpTo: Int64?

  struct Floor {
    var sequence: Int64
    /// The table is scanned, whatever its group is.
    var isScanned: Bool
  }

  /// Some table is scanned.
  var isScanning: Bool { groups.contains(where: \.isScanned) || floors.values.contains(where: \.isScanned) }

  func isScanned(_ table: Table) -> Bool {
    floors[table.name]?.isScanned ?? groups.contains { $0.isScanned && $0.name == table.group }
  }

  /// What the device has of a table is what it subscribed to before: what was added and dropped since is looked for among
  /// the rows.
  func hasAnotherScope(_ table: Table) -> Bool {
    groups.contains { $0.had != nil && $0.name == table.group } && !isScanned(table)
  }

  /// The last entry of the change log that the device has of a table; nil: it is not fed.
  func floor(of table: Table) -> Int64? {
    guard let group = groups.first(where: { $0.name == table.group }) else { return nil }
    return floors[table.name]?.sequence ?? group.floor
  }

  package var text: String {
    let json: JSONValue = [
      "schema": .string(schema),
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
      "floors": .array(
        floors.sorted { $0.key < $1.key }.map {
          .array([.string($0.key), .integer($0.value.sequence), .bool($0.value.isScanned)])
        }),
      "own": ownUpTo.map(JSONValue.integer) ?? .null,
    ]
    return json.text
  }

  init(schema: String, start: Commit, groups: [Group], scan: (step: Int, after: Key)?, fed: Int64) {
    self.schema = schema
    self.start = start
    self.groups = groups
    self.scan = scan
    self.fed = fed
  }

  /// More than the groups and tables of any begin need.
  private static let valuesMax = 50_000

  /// Of a device: anything may stand there. Throws `inconsistent-download` where no server gave the position, so that a
  /// device that holds one of a server that lied discards what is staged and begins again.
  init(_ text: String) throws {
    do {
      try self.init(reading: text)
    } catch let error as SalvorError where error.code == .malformed { throw Self.foreign }
  }

  private init(reading text: String) throws {
    let json = try JSONValue(parsing: Array(text.utf8), valuesMax: Self.valuesMax)
    // A position of an earlier build has none, and fits no schema.
    schema = try json.optionalString("schema") ?? ""
    start = Commit(number: try json.integer("start"), id: try json.identifier("id"))
    groups = []
    for entry in try json.array("groups") {
      // One of a server from before subscriptions.
      if entry.array?.count == 4 { throw Self.outdated("the server has been updated since it began") }
      guard let items = entry.array, items.count == 5, let name = items[0].string, let floor = items[1].integer,
        let isScanned = items[2].bool, let digest = items[3].string, floor >= 0
      else { throw Self.foreign }
      groups.append(Group(name: name, floor: floor, isScanned: isScanned, digest: digest, had: items[4].string))
    }
    fed = try json.integer("fed")
    guard fed >= 0 else { throw Self.foreign }
    for entry in try json.optionalArray("floors") ?? [] {
      guard let items = entry.array, items.count == 3, let name = items[0].string, let sequence = items[1].integer,
        let isScanned = items[2].bool, sequence >= 0
      else { throw Self.foreign }
      floors[name] = Floor(sequence: sequence, isScanned: isScanned)
    }
    ownUpTo = json["own"]?.integer
    if let place = try json.optionalArray("scan") {
      guard place.count == 2, let step = place[0].integer, step >= 0, let key = place[1].array else {
        throw Self.foreign
      }
      var values: Key = []
      for value in key {
        guard let value = value.rowValue else { throw Self.foreign }
        values.append(value)
      }
      scan = (Int(clamping: step), values)
    }
  }

  static var foreign: SalvorError { outdated("its position is not from this server") }

  static func outdated(_ why: String) -> SalvorError {
    SalvorError(
      .inconsistentDownload, "This download cannot go on: \(why). Discard what is staged and begin it again.")
  }
}
