import SalvorModel

/// What a device says of the bases of one table in its begin, to have them compared with the server's rows
/// (docs/architecture/comparison.md): `[TABLE, COUNT, DIGEST]`, with `true` behind it where `isFed`.
public struct TableDigest: Sendable, Hashable {
  /// The name of the table.
  public var table: String
  /// The number of rows.
  public var count: Int64
  /// The sum of the rows' digests (`RowDigest`), as it is written.
  public var digest: String
  /// What has changed since the group's cursor is to be fed, too, whatever the table's download mode: who compares knows
  /// then which rows differ because the server has changed them.
  public var isFed: Bool

  /// Takes the members as they are. `digest` is 16 hexadecimal digits.
  public init(table: String, count: Int64, digest: String, isFed: Bool = false) {
    self.table = table
    self.count = count
    self.digest = digest
    self.isFed = isFed
  }

  /// The same rows.
  public func agrees(with other: TableDigest) -> Bool { count == other.count && digest == other.digest }

  /// The entry of a begin's `compare`: `[TABLE,COUNT,DIGEST]`, or `[TABLE,COUNT,DIGEST,true]`.
  public var json: JSONValue {
    .array([.string(table), .integer(count), .string(digest)] + (isFed ? [.bool(true)] : []))
  }

  /// Reads an entry of `compare`, or of a snapshot's `tables`. Throws `malformed` unless it is a list of three or four
  /// items of the right kinds, with a count from 0 to `JSONValue.countMax`, a name and a digest of at most `Limits.nameBytesMax` bytes. A fourth item other
  /// than `true` counts as `false`.
  public init(_ json: JSONValue) throws(SalvorError) {
    guard let items = json.array, (3...4).contains(items.count), let table = items[0].string,
      let count = items[1].integer, (0...JSONValue.countMax).contains(count), let digest = items[2].string,
      max(table.utf8.count, digest.utf8.count) <= Limits.nameBytesMax
    else { throw SalvorError(.malformed, "A table to compare must be [table, count, digest].") }
    self.init(table: table, count: count, digest: digest, isFed: items.count == 4 && items[3].bool == true)
  }
}

/// The server's answer where tables differ: `{"compare":{"token":…,"head":COMMIT,"tables":[[TABLE,COUNT],…]}}`. The device
/// asks for ranges and rows under the token, and then for the download.
public struct ComparisonOffer: Sendable, Hashable {
  /// A table whose rows differ.
  public struct Table: Sendable, Hashable {
    /// The name of the table.
    public var name: String
    /// The server's rows.
    public var count: Int64
    /// Takes both members as they are.
    public init(name: String, count: Int64) {
      self.name = name
      self.count = count
    }
  }
  /// Names the session in the paths of the questions: `/v1/sync/TOKEN/ranges`, `…/rows` and `…/download`.
  public var token: String
  /// Every row that is read under the token is as of this commit, or newer: what has changed since comes with the download.
  public var head: Commit
  /// The tables that differ, each with its count.
  public var tables: [Table]

  /// Takes the members as they are.
  public init(token: String, head: Commit, tables: [Table]) {
    self.token = token
    self.head = head
    self.tables = tables
  }

  /// The line of the answer, with `compare` around it. `init(_:)` takes what stands inside.
  public var json: JSONValue {
    [
      "compare": [
        "token": .string(token), "head": head.json,
        "tables": .array(tables.map { .array([.string($0.name), .integer($0.count)]) }),
      ]
    ]
  }

  /// Throws `malformed` where a member is missing, or has another kind.
  ///
  /// - Parameter json: what stands under `compare`.
  public init(_ json: JSONValue) throws(SalvorError) {
    token = try json.string("token")
    head = try Commit(json["head"] ?? .null)
    tables = []
    for entry in try json.array("tables") {
      guard let items = entry.array, items.count == 2, let name = items[0].string, let count = items[1].integer,
        (0...JSONValue.countMax).contains(count)
      else {
        throw SalvorError(.malformed, "A table that differs must be [table, count].")
      }
      tables.append(Table(name: name, count: count))
    }
  }
}
