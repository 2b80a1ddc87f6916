import SalvorModel

/// What the changes of one kind look like: table, operation and the columns that each row array holds.
///
/// A row array is `[shape, …]` and then, for an insert the values of `columns` (all travelling columns); for an update
/// the key, then old and new value of each of `columns` (the changed ones); for a delete the key.
public struct UploadShape: Sendable, Hashable {
  /// The name of the table.
  public var table: String
  /// Whether the changes insert, update or delete.
  public var operation: Operation
  /// Names of columns: of an insert, all that travel; of an update, those that changed. A delete's row array has
  /// the key alone.
  public var columns: [String]
  /// Takes the members as they are.
  public init(table: String, operation: Operation, columns: [String]) {
    self.table = table
    self.operation = operation
    self.columns = columns
  }
}

/// Writes one upload chunk: JSON lines that stand on their own (docs/reference/protocol.md, *Upload payload*).
///
///     {"stamp":"…"}                                           the stamp of the request IDs that follow
///     {"shape":0,"table":"t","operation":"update","columns":["a"]}
///     {"context":[],"former":[7,6,2271560481]}                the request that begins with 7 was another one before, 6 with this content
///     {"request":7,"last":9,"tag":"visit 17"}                 the changes 7 to 9 are one request
///     {"context":[],"apart":[[0,1,106]]}                      of the order of the next line: no commit of the second was made upon 106 or a later one of the first
///     {"lost":["…","…"],"order":[[0,1]]}                      incarnations that the offers are of; the first lived before the second
///     {"context":[],"origin":[0,98]}                          the rows of the next line were so by the commit 98 of the first, lost before
///     {"offer":7,"last":9,"of":[1,105,100]}                   the changes 7 to 9 are offers of the commit 105 of the second
///     {"first":7,"made":57,"changes":[[0,"key","old","new"],…]}
///
/// `first` is the counter of the first change of the line, the others count on; `made` is the number of the commit that
/// the device's rows stood at when the changes were made. An offer's third number is that of the
/// newest commit that both sides had when they parted; `written` names columns that are no offer, `review` and `version` are as of
/// `Offer`. `[]` in a row array is the value before it once more: an offer names columns that are as the server has them, too. Without `order` the lost incarnations stand in the order in which they lived.
public struct UploadChunkWriter: Sendable {
  /// What was written so far. A line may still be open: `finish()` closes it.
  public private(set) var payload: PayloadWriter
  private var shapes: [UploadShape: Int] = [:]
  private var stamp: RequestStamp?
  private var nextCounter: Int64 = 0
  private var made: Int64 = 0
  private var lineIsOpen = false
  /// The counter of the chunk's first change; 0: the chunk has none.
  public private(set) var firstCounter: Int64 = 0
  /// The counter of the change that was begun last; 0: the chunk has none.
  public private(set) var lastCounter: Int64 = 0
  /// The number of changes that were begun.
  public private(set) var changeCount = 0
  /// Their places on the `lost` line.
  private var lost: [IncarnationID: Int] = [:]

  /// Blobs that the chunk refers to, each with its change.
  public private(set) var blobs: [OutgoingBlob] = []
  /// Their bytes in all.
  public var referredBytes: Int64 { payload.referredBytes }

  /// - Parameter blobs: makes references of large blobs; nil: each stands in the chunk.
  public init(capacity: Int = 0, blobs: BlobSink? = nil) {
    payload = PayloadWriter(capacity: capacity, blobs: blobs)
  }

  /// What the chunk has so far.
  public var byteCount: Int { payload.count }

  /// The place of a shape in this chunk; its line is written when it is new.
  public mutating func place(of shape: UploadShape) -> Int {
    if let place = shapes[shape] { return place }
    endLine()
    let place = shapes.count
    shapes[shape] = place
    payload.raw("{\"shape\":")
    payload.number(Int64(place))
    payload.raw(",\"table\":")
    payload.text(shape.table)
    payload.raw(",\"operation\":")
    payload.text(shape.operation.rawValue)
    payload.raw(",\"columns\":[")
    for (index, column) in shape.columns.enumerated() {
      if index > 0 { payload.comma() }
      payload.text(column)
    }
    payload.raw("]}\n")
    return place
  }

  /// Says that the changes from `first` to `last` are one request. Before its first change; it may end in a later chunk,
  /// which then says it again.
  public mutating func request(first: Int64, last: Int64, tag: String?) {
    endLine()
    payload.raw("{\"request\":")
    payload.number(first)
    payload.raw(",\"last\":")
    payload.number(last)
    if let tag {
      payload.raw(",\"tag\":")
      payload.text(tag)
    }
    payload.raw("}\n")
  }

  /// Says what the request that begins with the change `first` was before its device dropped columns or tables. Before its `request` and its
  /// first change.
  public mutating func former(first: Int64, _ contents: [FormerContent]) {
    endLine()
    // A server of an earlier release passes such lines over.
    payload.raw("{\"context\":[],\"former\":[")
    payload.number(first)
    for content in contents {
      payload.comma()
      payload.number(content.first)
      payload.comma()
      payload.number(Int64(content.content))
    }
    payload.raw("]}\n")
  }

  /// The incarnations that offers of this chunk may name: a later one's versions are newer. Once in a chunk, before its first
  /// offer.
  ///
  /// - Parameter order: what is known of their order; nil: they stand in it.
  public mutating func lost(_ incarnations: [IncarnationID], order: [LostNeighbours]? = nil) {
    endLine()
    let places = Dictionary(incarnations.enumerated().map { ($1, $0) }) { first, _ in first }
    func pairs(_ pairs: [LostNeighbours], withNumbers: Bool = false) {
      var isFirst = true
      for pair in pairs {
        guard let earlier = places[pair.earlier], let later = places[pair.later] else { continue }
        if !isFirst { payload.comma() }
        isFirst = false
        payload.raw("[")
        payload.number(Int64(earlier))
        payload.comma()
        payload.number(Int64(later))
        if withNumbers, let number = pair.apartFrom, number > LostNeighbours.allApart {
          payload.comma()
          payload.number(number)
        }
        payload.raw("]")
      }
      payload.raw("]")
    }
    if let apart = order?.filter({ $0.apartFrom != nil }), !apart.isEmpty {
      // A server of an earlier release passes such lines over.
      payload.raw("{\"context\":[],\"apart\":[")
      pairs(apart, withNumbers: true)
      payload.raw("}\n")
    }
    payload.raw("{\"lost\":[")
    for (place, incarnation) in incarnations.enumerated() {
      if place > 0 { payload.comma() }
      payload.text(incarnation.text)
      lost[incarnation] = place
    }
    payload.raw("]")
    if let order {
      payload.raw(",\"order\":[")
      pairs(order)
    }
    payload.raw("}\n")
  }

  /// Says that the changes from `first` to `last` are offers, each a request of its own. Before the first of them, and after
  /// `lost`, which names its incarnation.
  public mutating func offer(first: Int64, last: Int64, _ offer: Offer) {
    endLine()
    if let origin = offer.version.origin, let place = lost[origin.incarnation] {
      // A server of an earlier release passes such lines over.
      payload.raw("{\"context\":[],\"origin\":[")
      payload.number(Int64(place))
      payload.comma()
      payload.number(origin.number)
      payload.raw("]}\n")
    }
    payload.raw("{\"offer\":")
    payload.number(first)
    payload.raw(",\"last\":")
    payload.number(last)
    payload.raw(",\"of\":[")
    payload.number(Int64(lost[offer.version.incarnation] ?? 0))
    payload.comma()
    payload.number(offer.version.number)
    payload.comma()
    payload.number(offer.version.parting)
    payload.raw("]")
    if !offer.written.isEmpty {
      payload.raw(",\"written\":[")
      for (place, column) in offer.written.enumerated() {
        if place > 0 { payload.comma() }
        payload.text(column)
      }
      payload.raw("]")
    }
    if offer.isForReview { payload.raw(",\"review\":true") }
    if offer.isVersion { payload.raw(",\"version\":true") }
    payload.raw("}\n")
  }

  /// Begins a row array; write each value with `payload` calls through `value…` and then call `endChange()`.
  public mutating func beginChange(shape place: Int, stamp: RequestStamp, counter: Int64, made: Int64) {
    if self.stamp != stamp {
      endLine()
      self.stamp = stamp
      payload.raw("{\"stamp\":")
      payload.text(stamp.text)
      payload.raw("}\n")
    }
    if lineIsOpen && (counter != nextCounter || made != self.made) { endLine() }
    if lineIsOpen {
      payload.comma()
    } else {
      payload.raw("{\"first\":")
      payload.number(counter)
      payload.raw(",\"made\":")
      payload.number(made)
      payload.raw(",\"changes\":[")
      lineIsOpen = true
    }
    if changeCount == 0 { firstCounter = counter }
    lastCounter = counter
    nextCounter = counter + 1
    self.made = made
    changeCount += 1
    payload.raw("[")
    payload.number(Int64(place))
  }

  /// - Parameter isKey: it is a part of the row's key.
  public mutating func value(_ value: Value, isKey: Bool = false) {
    self.value { $0.value(value, isKey: isKey) }
  }

  /// Appends a value through the payload writer itself, after the comma.
  public mutating func value(_ write: (inout PayloadWriter) throws -> Void) rethrows {
    payload.comma()
    let known = payload.references.count
    try write(&payload)
    for reference in payload.references[known...] {
      blobs.append(OutgoingBlob(reference: reference, counter: lastCounter))
    }
  }

  /// The value that was appended last, once more.
  public mutating func sameValue() { payload.raw(",[]") }

  /// Ends the row array that `beginChange` began.
  public mutating func endChange() { payload.raw("]") }

  private mutating func endLine() {
    guard lineIsOpen else { return }
    payload.raw("]}\n")
    lineIsOpen = false
  }

  /// The chunk's text.
  public mutating func finish() -> [UInt8] {
    endLine()
    return payload.bytes
  }
}

/// Reads an upload chunk as a sequence of events, values in place.
public struct UploadChunkReader: ~Copyable {
  /// What `next()` finds in a chunk. A `stamp` line is no event: the stamp comes with each change. Of a `context`
  /// line only `former` is one.
  public enum Event {
    /// A new shape; its number is its place among `shapes`.
    case shape(Int)
    case request(first: Int64, last: Int64, tag: String?)
    /// What the request that begins with the change `first` was before.
    case former(first: Int64, [FormerContent])
    /// Read the row with `item()` until it gives nil.
    case change(shape: Int, stamp: RequestStamp, counter: Int64, made: Int64)
    /// The incarnations that offers are of, and what is known of the order in which they lived.
    case lost([IncarnationID], order: [LostNeighbours])
    /// The changes from `first` to `last` are offers.
    case offer(first: Int64, last: Int64, offer: Offer)
  }

  /// A chunk names at most so many lost incarnations.
  public static let lostMax = 1000
  /// A device counts its changes from 1; what counts on from here is a number still.
  public static let counterMax: Int64 = 1 << 62
  /// And so many pairs of their order.
  public static let lostOrderMax = 8 * lostMax

  private var reader: PayloadReader
  /// The shapes that were read so far. A shape's number is its place here.
  public private(set) var shapes: [UploadShape] = []
  private var stamp: RequestStamp?
  private var lost: [IncarnationID] = []
  /// What the next `lost` line has in its order, and is of different histories: by the pair the number from which on.
  private var apart: [[Int64]: Int64] = [:]
  /// Of the offers of the next line.
  private var origin: LostVersion.Origin?
  private var counter: Int64 = 0
  private var made: Int64 = 0
  private var inChanges = false
  private var isFirstChange = true
  private var inRow = false
  /// The value of the row that was read last.
  private var lastItem: PayloadReader.Item?

  /// - Parameter blobs: as of `PayloadReader`.
  public init(_ buffer: UnsafeBufferPointer<UInt8>, blobs: (any BlobResolver)? = nil) {
    reader = PayloadReader(buffer, blobs: blobs)
  }

  /// As of `PayloadReader`.
  public var lastReference: BlobReference? { reader.lastReference }

  /// The error `malformed`, with the number of bytes that were read so far. `what` says what is wrong there.
  public func malformed(_ what: String) -> SalvorError { reader.malformed(what) }

  /// The next event; nil at the end of the chunk. Values of a row that were not read are skipped. Throws `malformed`
  /// where the text is not of the protocol.
  public mutating func next() throws(SalvorError) -> Event? {
    while inRow { try skipItem() }
    while true {
      if inChanges {
        if try reader.nextElement(&isFirstChange) { return try beginChange() }
        try reader.expect(0x7D)
        inChanges = false
      }
      if reader.atEnd() { return nil }
      if let event = try line() { return event }
    }
  }

  private mutating func beginChange() throws(SalvorError) -> Event {
    guard let stamp else { throw reader.malformed("changes before a stamp") }
    try reader.beginArray()
    let place = try reader.integer()
    guard place >= 0, place < shapes.count else { throw reader.malformed("an unknown shape") }
    inRow = true
    lastItem = nil
    defer { counter += 1 }
    return .change(shape: Int(place), stamp: stamp, counter: counter, made: made)
  }

  /// The next value of the row; nil at its end.
  public mutating func item() throws(SalvorError) -> PayloadReader.Item? {
    guard inRow else { return nil }
    if try reader.take(0x5D) {
      inRow = false
      return nil
    }
    try reader.expect(0x2C)
    if try reader.take(0x5B) {
      try reader.expect(0x5D)
      guard let lastItem else { throw reader.malformed("no value before it that it could repeat") }
      return lastItem
    }
    lastItem = try reader.item()
    return lastItem
  }

  private mutating func skipItem() throws(SalvorError) {
    inRow = try !reader.take(0x5D)
    guard inRow else { return }
    try reader.expect(0x2C)
    try reader.skipValue()
  }

  /// One line's head. Nil: it only changed the state.
  private mutating func line() throws(SalvorError) -> Event? {
    try reader.beginObject()
    var isFirst = true
    guard let key = try reader.nextKey(&isFirst) else { throw reader.malformed("an empty line object") }
    switch key {
    case "stamp":
      guard let stamp = RequestStamp(try reader.text()) else { throw reader.malformed("not a stamp") }
      self.stamp = stamp
      try reader.expect(0x7D)
      return nil
    case "shape":
      guard try reader.integer() == shapes.count else { throw reader.malformed("shapes must count from 0") }
      shapes.append(try shape(&isFirst))
      return .shape(shapes.count - 1)
    case "request": return try request(&isFirst)
    // What readers of an earlier release pass over. Devices of an earlier release sent the unchanged parents of changed rows so: nothing
    // needs them.
    case "context":
      try reader.skipValue()
      var former: Event?
      while let key = try reader.nextKey(&isFirst) {
        switch key {
        case "origin": origin = try originOfOffers()
        case "apart":
          let pairs = try places(withNumbers: true)
          apart = Dictionary(
            pairs.map { (Array($0.prefix(2)), $0.count > 2 ? $0[2] : LostNeighbours.allApart) }, uniquingKeysWith: max)
        case "former": former = try self.former()
        default: try reader.skipValue()
        }
      }
      return former
    case "lost": return try lostIncarnations(&isFirst)
    case "offer": return try offer(&isFirst)
    case "first":
      counter = try reader.integer()
      guard (1...Self.counterMax).contains(counter), try reader.nextKey(&isFirst) == "made" else {
        throw reader.malformed("expected \"made\"")
      }
      made = try reader.integer()
      guard try reader.nextKey(&isFirst) == "changes" else { throw reader.malformed("expected \"changes\"") }
      try reader.beginArray()
      inChanges = true
      isFirstChange = true
      return nil
    default: throw reader.malformed("an unknown line \"\(key.prefix(40))\"")
    }
  }

  private mutating func shape(_ isFirst: inout Bool) throws(SalvorError) -> UploadShape {
    guard try reader.nextKey(&isFirst) == "table" else { throw reader.malformed("expected \"table\"") }
    let table = try reader.text()
    guard try reader.nextKey(&isFirst) == "operation", let operation = Operation(rawValue: try reader.text()) else {
      throw reader.malformed("expected an \"operation\" insert, update or delete")
    }
    guard try reader.nextKey(&isFirst) == "columns" else { throw reader.malformed("expected \"columns\"") }
    var columns: [String] = []
    try reader.beginArray()
    var isFirstColumn = true
    while try reader.nextElement(&isFirstColumn) {
      columns.append(try reader.text())
      guard columns.count <= Limits().columnsMax else { throw reader.malformed("too many columns") }
    }
    guard Set(columns).count == columns.count else { throw reader.malformed("a column stands twice in the shape") }
    try reader.expect(0x7D)
    return UploadShape(table: table, operation: operation, columns: columns)
  }

  /// The request's first counter, and then pairs.
  private mutating func former() throws(SalvorError) -> Event {
    var numbers: [Int64] = []
    try reader.beginArray()
    var isFirst = true
    while try reader.nextElement(&isFirst) {
      numbers.append(try reader.integer())
      guard numbers.count <= 1 + 2 * FormerContent.countMax else { break }
    }
    guard (3...(1 + 2 * FormerContent.countMax)).contains(numbers.count), numbers.count % 2 == 1 else {
      throw reader.malformed("what a request was is a counter and pairs of a counter and a content")
    }
    let contents = stride(from: 1, to: numbers.count, by: 2).map { place in
      FormerContent(first: numbers[place], content: UInt32(truncatingIfNeeded: numbers[place + 1]))
    }
    return .former(first: numbers[0], contents)
  }

  private mutating func lostIncarnations(_ isFirst: inout Bool) throws(SalvorError) -> Event {
    guard lost.isEmpty else { throw reader.malformed("a second \"lost\"") }
    try reader.beginArray()
    var isFirstOne = true
    while try reader.nextElement(&isFirstOne) {
      guard let incarnation = IncarnationID(try reader.text()), !lost.contains(incarnation) else {
        throw reader.malformed("not an incarnation, or one twice")
      }
      lost.append(incarnation)
      guard lost.count <= Self.lostMax else { throw reader.malformed("too many incarnations") }
    }
    guard let key = try reader.nextKey(&isFirst) else { return .lost(lost, order: LostNeighbours.chain(lost)) }
    guard key == "order" else { throw reader.malformed("expected \"order\"") }
    let order = try lostOrder()
    try reader.expect(0x7D)
    return .lost(lost, order: order)
  }

  private mutating func lostOrder() throws(SalvorError) -> [LostNeighbours] {
    defer { apart = [:] }
    var order: [LostNeighbours] = []
    for pair in try places() {
      guard pair.allSatisfy({ $0 < lost.count }) else {
        throw reader.malformed("a pair of the order is of two of the incarnations")
      }
      order.append(
        LostNeighbours(lost[Int(pair[0])], before: lost[Int(pair[1])], apartFrom: apart[pair]))
    }
    return order
  }

  /// Pairs of places in `lost`; a number may follow.
  private mutating func places(withNumbers: Bool = false) throws(SalvorError) -> [[Int64]] {
    let most = withNumbers ? 3 : 2
    var pairs: [[Int64]] = []
    try reader.beginArray()
    var isFirstPair = true
    while try reader.nextElement(&isFirstPair) {
      var places: [Int64] = []
      try reader.beginArray()
      var isFirstPlace = true
      while try reader.nextElement(&isFirstPlace) {
        places.append(try reader.integer())
        guard places.count <= most else { break }
      }
      guard (2...most).contains(places.count), places.allSatisfy({ $0 >= 0 }), places[0] != places[1] else {
        throw reader.malformed("a pair of the order is of two of the incarnations")
      }
      pairs.append(places)
      guard pairs.count <= Self.lostOrderMax else { throw reader.malformed("too many pairs of the order") }
    }
    return pairs
  }

  private mutating func offer(_ isFirst: inout Bool) throws(SalvorError) -> Event {
    let first = try reader.integer()
    guard try reader.nextKey(&isFirst) == "last" else { throw reader.malformed("expected \"last\"") }
    let last = try reader.integer()
    guard try reader.nextKey(&isFirst) == "of" else { throw reader.malformed("expected \"of\"") }
    var numbers: [Int64] = []
    try reader.beginArray()
    var isFirstNumber = true
    while try reader.nextElement(&isFirstNumber) {
      numbers.append(try reader.integer())
      guard numbers.count <= 3 else { throw reader.malformed("an offer is of three numbers") }
    }
    var written: [String] = []
    var (isForReview, isVersion) = (false, false)
    while let key = try reader.nextKey(&isFirst) {
      switch key {
      case "written": written = try writtenColumns()
      case "review": isForReview = try reader.boolean()
      case "version": isVersion = try reader.boolean()
      default: throw reader.malformed("expected \"written\", \"review\" or \"version\"")
      }
    }
    defer { origin = nil }
    guard first > 0, last >= first, last <= Self.counterMax, numbers.count == 3, numbers[0] >= 0,
      numbers[0] < lost.count, numbers[2] >= 0,
      numbers[1] > numbers[2]
    else { throw reader.malformed("an offer of no lost commit") }
    let version = LostVersion(
      incarnation: lost[Int(numbers[0])], number: numbers[1], parting: numbers[2],
      origin: origin?.incarnation == lost[Int(numbers[0])] ? nil : origin)
    return .offer(
      first: first, last: last,
      offer: Offer(version, written: written, isForReview: isForReview, isVersion: isVersion))
  }

  private mutating func originOfOffers() throws(SalvorError) -> LostVersion.Origin {
    var numbers: [Int64] = []
    try reader.beginArray()
    var isFirst = true
    while try reader.nextElement(&isFirst) {
      numbers.append(try reader.integer())
      guard numbers.count <= 2 else { break }
    }
    guard numbers.count == 2, numbers[0] >= 0, numbers[0] < lost.count, numbers[1] > 0 else {
      throw reader.malformed("an origin is an incarnation and the number of a commit")
    }
    return LostVersion.Origin(incarnation: lost[Int(numbers[0])], number: numbers[1])
  }

  private mutating func writtenColumns() throws(SalvorError) -> [String] {
    var written: [String] = []
    try reader.beginArray()
    var isFirstColumn = true
    while try reader.nextElement(&isFirstColumn) {
      written.append(try reader.text())
      guard written.count <= Limits().columnsMax else { throw reader.malformed("too many columns") }
    }
    return written
  }

  private mutating func request(_ isFirst: inout Bool) throws(SalvorError) -> Event {
    let first = try reader.integer()
    guard try reader.nextKey(&isFirst) == "last" else { throw reader.malformed("expected \"last\"") }
    let last = try reader.integer()
    var tag: String?
    if let key = try reader.nextKey(&isFirst) {
      guard key == "tag" else { throw reader.malformed("expected \"tag\"") }
      tag = try reader.text()
      try reader.expect(0x7D)
    }
    guard first > 0, last >= first, last <= Self.counterMax else {
      throw reader.malformed("a request that ends before it begins")
    }
    return .request(first: first, last: last, tag: tag)
  }
}
