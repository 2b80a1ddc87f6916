import SalvorModel

/// What a device says of the bases of one table in its begin, to have them compared with the server's rows
/// (docs/architecture/comparison.md): `[TABLE, COUNT, DIGEST]`, with `true` behind it where `isFed`.
public struct TableDigest: Sendable, Hashable {
  public var table: String
  public var count: Int64
  /// The sum of the rows' digests (`RowDigest`), as it is written.
  public var digest: String
  /// What has changed since the group's cursor is to be fed, too, whatever the table's download mode: who compares knows
  /// then which rows differ because the server has changed them.
  public var isFed: Bool

  public init(table: String, count: Int64, digest: String, isFed: Bool = false) {
    self.table = table
    self.count = count
    self.digest = digest
    self.isFed = isFed
  }

  /// The same rows.
  public func agrees(with other: TableDigest) -> Bool { count == other.count && digest == other.digest }

  public var json: JSONValue {
    .array([.string(table), .integer(count), .string(digest)] + (isFed ? [.bool(true)] : []))
  }

  public init(_ json: JSONValue) throws(SalvorError) {
    guard let items = json.array, (3...4).contains(items.count), let table = items[0].string,
      let count = items[1].integer, let digest = items[2].string,
      max(table.utf8.count, digest.utf8.count) <= Limits.nameBytesMax
    else { throw SalvorError(.malformed, "A table to compare must be [table, count, digest].") }
    self.init(table: table, count: count, digest: digest, isFed: items.count == 4 && items[3].bool == true)
  }
}

/// The server's answer where tables differ: `{"compare":{"token":…,"head":COMMIT,"tables":[[TABLE,COUNT],…]}}`. The device
/// asks for ranges and rows under the token, and then for the download.
public struct ComparisonOffer: Sendable, Hashable {
  public struct Table: Sendable, Hashable {
    public var name: String
    /// The server's rows.
    public var count: Int64
    public init(name: String, count: Int64) {
      self.name = name
      self.count = count
    }
  }
  public var token: String
  /// Every row that is read under the token is as of this commit, or newer: what has changed since comes with the download.
  public var head: Commit
  public var tables: [Table]

  public init(token: String, head: Commit, tables: [Table]) {
    self.token = token
    self.head = head
    self.tables = tables
  }

  public var json: JSONValue {
    [
      "compare": [
        "token": .string(token), "head": head.json,
        "tables": .array(tables.map { .array([.string($0.name), .integer($0.count)]) }),
      ]
    ]
  }

  /// - Parameter json: what stands under `compare`.
  public init(_ json: JSONValue) throws(SalvorError) {
    token = try json.string("token")
    head = try Commit(json["head"] ?? .null)
    tables = []
    for entry in try json.array("tables") {
      guard let items = entry.array, items.count == 2, let name = items[0].string, let count = items[1].integer else {
        throw SalvorError(.malformed, "A table that differs must be [table, count].")
      }
      tables.append(Table(name: name, count: count))
    }
  }
}
