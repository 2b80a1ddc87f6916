import SalvorModel

/// What a download line's keys mean.
public enum Departure: String, Sendable, Hashable {
  /// Deleted on the server: a tombstone.
  case deleted
  /// Left this device's scope; not a delete.
  case left
  /// No subscription of the device covers the row any more, though the principal may still see it: changes of it that wait
  /// for upload can still be sent.
  case dropped
  /// The server has no such row and no tombstone of one: only in answers to a recovery's questions.
  case lost
}

/// Writes one download chunk: JSON lines that stand on their own (docs/reference/protocol.md, *Download payload*).
///
///     {"full":["t"]}                                  these tables come whole: a row that does not come is not there
///     {"table":"t","columns":["id","a"]}
///     {"version":58,"rows":[["key",1],…]}             rows that commit 58, at the latest, changed
///     {"rows":[["key",1],…]}                          rows as of the snapshot
///     {"version":58,"changed":[["key",1],…]}          of rows that the device has: the named columns, the others stay
///     {"version":58,"deleted":[["key"],…]}            keys of rows that commit 58 deleted
///     {"version":58,"left":[["key"],…]}               keys of rows that left the scope; without a version: that a recovery asked for, and is not shown
///     {"version":58,"dropped":[["key"],…]}            keys of rows that no subscription covers any more
///     {"lost":[["key"],…]}                            keys of rows that a recovery asked for and the server has not
public struct DownloadChunkWriter: Sendable {
  private enum Line: Hashable {
    case rows
    case changed
    case departed(Departure)
  }

  /// What was written so far. A line may still be open: `finish()` closes it.
  public private(set) var payload: PayloadWriter
  private var table: String?
  private var columns: [String] = []
  private var line: Line?
  private var version: Int64?
  /// Where the last row, part or key began.
  private var lineStart = 0
  /// Where the open line began.
  private var openedAt = 0
  private let rowBytesMax: Int
  private let blobBytesMax: Int64
  private var before: Mark?

  /// Where the writer stood before the last row.
  private struct Mark {
    var payload: PayloadWriter.Mark
    var line: Line?
    var version: Int64?
    var upserts: Int
    var deletes: Int
  }
  /// The number of rows and parts of rows that were begun.
  public private(set) var upserts = 0
  /// The number of keys that were begun, of every kind of departure.
  public private(set) var deletes = 0

  private let lineBytesTarget: Int

  /// - Parameters:
  ///   - blobs: makes references of large blobs; nil: each stands in the chunk.
  ///   - rowBytesMax: a row of more bytes than these is not written.
  ///   - blobBytesMax: nor is one with a reference of a blob of more bytes.
  ///   - lineBytesTarget: a line of so many bytes is ended, and the next row begins another: who reads line by line holds no more, and one row.
  public init(
    capacity: Int = 0, blobs: BlobSink? = nil, rowBytesMax: Int = .max, blobBytesMax: Int = .max,
    lineBytesTarget: Int = 256 << 10
  ) {
    self.lineBytesTarget = lineBytesTarget
    payload = PayloadWriter(capacity: capacity, blobs: blobs?.hashing(upTo: blobBytesMax))
    self.rowBytesMax = rowBytesMax
    self.blobBytesMax = Int64(blobBytesMax)
  }

  /// The number of bytes that were written so far, without the blobs that the chunk refers to.
  public var byteCount: Int { payload.count }
  /// Bytes of the blobs that the chunk refers to.
  public var referredBytes: Int64 { payload.referredBytes }

  /// Says that these tables come whole: a row of them that does not come is not there.
  public mutating func full(_ tables: [String]) {
    endLine()
    payload.raw("{\"full\":")
    names(tables)
    payload.raw("}\n")
  }

  /// Names the table of the lines that follow.
  public mutating func table(_ name: String, columns: [String]) {
    guard table != name || self.columns != columns else { return }
    endLine()
    table = name
    self.columns = columns
    payload.raw("{\"table\":")
    payload.text(name)
    payload.raw(",\"columns\":")
    names(columns)
    payload.raw("}\n")
  }

  /// Begins a row; write its values with `value` and call `endRow()`.
  public mutating func beginRow(version: Int64?) {
    begin(.rows, version)
    upserts += 1
  }

  /// Begins a part of a row that the device has: the key, and the columns that were changed.
  public mutating func beginPart(version: Int64?) {
    begin(.changed, version)
    upserts += 1
  }

  /// Begins the key of a row that is gone.
  public mutating func beginKey(_ departure: Departure, version: Int64?) {
    begin(.departed(departure), version)
    deletes += 1
  }

  /// - Parameter isKey: it is a part of the row's key.
  public mutating func value(_ value: Value, isKey: Bool = false) { self.value { $0.value(value, isKey: isKey) } }

  /// Appends a value through the payload writer itself, after the comma. The closure must write exactly one value.
  public mutating func value(_ write: (inout PayloadWriter) throws -> Void) rethrows {
    if payload.count != lineStart { payload.comma() }
    try write(&payload)
  }

  /// Ends the row, the part or the key that was begun last. False: it, or a blob of it, is larger than may be, and nothing of it was written.
  @discardableResult
  public mutating func endRow() -> Bool {
    payload.raw("]")
    guard let before else { return true }
    guard payload.count - lineStart > rowBytesMax || payload.hasReference(above: blobBytesMax, since: before.payload)
    else { return true }
    payload.goBack(to: before.payload)
    (line, version, upserts, deletes) = (before.line, before.version, before.upserts, before.deletes)
    return false
  }

  private mutating func begin(_ line: Line, _ version: Int64?) {
    before = Mark(payload: payload.mark, line: self.line, version: self.version, upserts: upserts, deletes: deletes)
    if self.line == line && self.version == version && payload.count - openedAt < lineBytesTarget {
      payload.raw(",[")
    } else {
      endLine()
      openedAt = payload.count
      self.line = line
      self.version = version
      payload.raw("{")
      if let version {
        payload.raw("\"version\":")
        payload.number(version)
        payload.comma()
      }
      switch line {
      case .rows: payload.raw("\"rows\":[[")
      case .changed: payload.raw("\"changed\":[[")
      case .departed(.deleted): payload.raw("\"deleted\":[[")
      case .departed(.left): payload.raw("\"left\":[[")
      case .departed(.dropped): payload.raw("\"dropped\":[[")
      case .departed(.lost): payload.raw("\"lost\":[[")
      }
    }
    lineStart = payload.count
  }

  private mutating func endLine() {
    guard line != nil else { return }
    payload.raw("]}\n")
    line = nil
  }

  private mutating func names(_ names: [String]) {
    payload.raw("[")
    for (index, name) in names.enumerated() {
      if index > 0 { payload.comma() }
      payload.text(name)
    }
    payload.raw("]")
  }

  /// Ends the last line and gives the chunk's bytes. Call it once, after the last `endRow()`.
  public mutating func finish() -> [UInt8] {
    endLine()
    return payload.bytes
  }
}

/// Reads a download chunk as a sequence of events, values in place.
public struct DownloadChunkReader: ~Copyable {
  /// What `next()` finds in a chunk.
  public enum Event {
    case full([String])
    case table(String, columns: [String])
    /// Read the values with `item()` until it gives nil.
    case row(version: Int64?)
    /// A part of a row that the device has: the columns that are named. Read as a row's.
    case part(version: Int64?)
    case key(Departure, version: Int64?)
  }

  private var reader: PayloadReader
  private var version: Int64?
  private var departure: Departure?
  private var isPart = false
  private var inLine = false
  private var isFirstRow = true
  private var inRow = false
  private var isFirstItem = true

  /// - Parameter blobs: as of `PayloadReader`.
  public init(_ buffer: UnsafeBufferPointer<UInt8>, blobs: (any BlobResolver)? = nil) {
    reader = PayloadReader(buffer, blobs: blobs)
  }

  /// As of `PayloadReader`.
  public var lastReference: BlobReference? { reader.lastReference }

  /// The error `malformed`, with the number of bytes that were read so far. `what` says what is wrong there.
  public func malformed(_ what: String) -> SalvorError { reader.malformed(what) }

  /// Bytes read so far: after `.row`, those up to the row's opening bracket and with it.
  public var offset: Int { reader.offset }

  /// The next event; nil at the end of the chunk. Values of a row that were not read are skipped. Throws `malformed`
  /// where the text is not of the protocol.
  public mutating func next() throws(SalvorError) -> Event? {
    while inRow {
      inRow = try reader.nextElement(&isFirstItem)
      if inRow { try reader.skipValue() }
    }
    while true {
      if inLine {
        if try reader.nextElement(&isFirstRow) {
          try reader.beginArray()
          inRow = true
          isFirstItem = true
          if let departure { return .key(departure, version: version) }
          return isPart ? .part(version: version) : .row(version: version)
        }
        try reader.expect(0x7D)
        inLine = false
      }
      if reader.atEnd() { return nil }
      if let event = try line() { return event }
    }
  }

  /// The next value of the row or key; nil at its end.
  public mutating func item() throws(SalvorError) -> PayloadReader.Item? {
    guard inRow else { return nil }
    guard try reader.nextElement(&isFirstItem) else {
      inRow = false
      return nil
    }
    return try reader.item()
  }

  private mutating func line() throws(SalvorError) -> Event? {
    try reader.beginObject()
    var isFirst = true
    var key = try reader.nextKey(&isFirst)
    version = nil
    departure = nil
    isPart = false
    if key == "version" {
      version = try reader.integer()
      key = try reader.nextKey(&isFirst)
    }
    switch key {
    case "full":
      let tables = try names()
      try reader.expect(0x7D)
      return .full(tables)
    case "table":
      let table = try reader.text()
      guard try reader.nextKey(&isFirst) == "columns" else { throw reader.malformed("expected \"columns\"") }
      let columns = try names()
      try reader.expect(0x7D)
      return .table(table, columns: columns)
    case "rows": break
    case "changed": isPart = true
    case "deleted": departure = .deleted
    case "left": departure = .left
    case "dropped": departure = .dropped
    case "lost": departure = .lost
    default: throw reader.malformed("an unknown line")
    }
    try reader.beginArray()
    inLine = true
    isFirstRow = true
    return nil
  }

  private mutating func names() throws(SalvorError) -> [String] {
    var names: [String] = []
    try reader.beginArray()
    var isFirst = true
    while try reader.nextElement(&isFirst) { names.append(try reader.text()) }
    return names
  }
}
