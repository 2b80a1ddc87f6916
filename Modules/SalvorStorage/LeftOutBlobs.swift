import SalvorModel
import SalvorWire

/// What a device remembers of rows that it left out, since each has a blob of more than it takes (`Limits.blobBytesMax`).
public struct LeftOutBlobs: Sendable, Hashable {
  /// What the device took then, in bytes. When it takes more, the tables are compared with the server.
  public var bytesMax: Int64
  /// Names of tables that lack rows.
  public var tables: Set<String>
  /// What a person is to be told with the download that is staged.
  public var notices: [String]

  private static let noticesMax = 20
  /// Of a key so many characters are told.
  private static let keyCharactersMax = 200

  /// Nothing was left out yet.
  public init(bytesMax: Int64) { (self.bytesMax, tables, notices) = (bytesMax, [], []) }

  /// Notes rows that were left out.
  public mutating func note(_ left: [PlacedBlob], bytesMax: Int64) {
    self.bytesMax = bytesMax
    for (reference, place) in left {
      tables.insert(place.table)
      if notices.count == Self.noticesMax { notices.append("More rows were left out for their blobs.") }
      if notices.count > Self.noticesMax { return }
      let notice =
        "The row \(place.keyText.prefix(Self.keyCharactersMax)) of \(place.table) was left out: its \(place.column) has \(reference.size) bytes, more than this device takes (client.limits.blobBytesMax \(bytesMax)). Raise that, and the next synchronization brings the row; or make the value smaller at the server."
      if !notices.contains(notice) { notices.append(notice) }
    }
  }

  /// As a store keeps it.
  public var json: JSONValue {
    [
      "bytesMax": .integer(bytesMax), "tables": .array(tables.sorted().map(JSONValue.string)),
      "notices": .array(notices.map(JSONValue.string)),
    ]
  }

  /// From `json`.
  public init(_ json: JSONValue) throws {
    bytesMax = try json.integer("bytesMax")
    tables = Set(try json.array("tables").compactMap(\.string))
    notices = try json.array("notices").compactMap(\.string)
  }
}
