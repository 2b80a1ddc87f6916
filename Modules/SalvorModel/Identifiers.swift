/// A random 128-bit identifier, written as 32 lower-case hexadecimal digits.
///
/// Remote IDs, server IDs, sync sequence IDs, incarnations, commit IDs and request stamps are all of this shape;
/// each has its own type, so that one is never taken for another.
public protocol RandomIdentifier: Sendable, Hashable, CustomStringConvertible {
  /// 32 lower-case hexadecimal digits.
  var text: String { get }
  /// Takes the text as it is. For text that is known to be right; `init(_:)` checks it.
  init(unchecked text: String)
}

extension RandomIdentifier {
  /// Nil unless `text` is 32 lower-case hexadecimal digits.
  public init?(_ text: some StringProtocol) {
    let text = String(text)
    guard text.utf8.count == 32,
      text.utf8.allSatisfy({ (48...57).contains($0) || (97...102).contains($0) })
    else { return nil }
    self.init(unchecked: text)
  }

  /// Draws a new one: 16 bytes of `random`.
  public init(from random: any RandomSource) {
    self.init(unchecked: hexadecimal(random.bytes(16)))
  }

  /// The same as `text`.
  public var description: String { text }
}

/// One remote database.
public struct RemoteID: RandomIdentifier {
  /// 32 lower-case hexadecimal digits.
  public let text: String
  /// Takes the text as it is; `init(_:)` checks it.
  public init(unchecked text: String) { self.text = text }
}

/// One consolidated database, drawn once (semantics 6).
public struct ServerID: RandomIdentifier {
  /// 32 lower-case hexadecimal digits.
  public let text: String
  /// Takes the text as it is; `init(_:)` checks it.
  public init(unchecked text: String) { self.text = text }
}

/// One upload (semantics 5).
public struct SequenceID: RandomIdentifier {
  /// 32 lower-case hexadecimal digits.
  public let text: String
  /// Takes the text as it is; `init(_:)` checks it.
  public init(unchecked text: String) { self.text = text }
}

/// One start of the server (semantics 6).
public struct IncarnationID: RandomIdentifier {
  /// 32 lower-case hexadecimal digits.
  public let text: String
  /// Takes the text as it is; `init(_:)` checks it.
  public init(unchecked text: String) { self.text = text }
}

/// The random half of a commit's name (semantics 6).
public struct CommitID: RandomIdentifier {
  /// 32 lower-case hexadecimal digits.
  public let text: String
  /// Takes the text as it is; `init(_:)` checks it.
  public init(unchecked text: String) { self.text = text }
}

/// Drawn for each session; with a counter it makes a request's ID (semantics 5).
public struct RequestStamp: RandomIdentifier {
  /// 32 lower-case hexadecimal digits.
  public let text: String
  /// Takes the text as it is; `init(_:)` checks it.
  public init(unchecked text: String) { self.text = text }
}

/// A request's ID, never used again: the stamp of the session after which it was captured, and the capture counter.
/// Written `STAMP-COUNTER`.
public struct RequestID: Sendable, Hashable, CustomStringConvertible {
  /// Drawn for the session after which the request was captured.
  public var stamp: RequestStamp
  /// The capture counter of the request's first change, from 1.
  public var counter: Int64

  /// Takes both parts as they are; a counter is at least 1.
  public init(stamp: RequestStamp, counter: Int64) {
    self.stamp = stamp
    self.counter = counter
  }

  /// Reads `STAMP-COUNTER`. Nil where the stamp is none, or the counter is not a whole number of at least 1.
  public init?(_ text: String) {
    let parts = text.split(separator: "-", omittingEmptySubsequences: false)
    guard parts.count == 2, let stamp = RequestStamp(parts[0]), let counter = Int64(parts[1]), counter > 0 else {
      return nil
    }
    self.init(stamp: stamp, counter: counter)
  }

  /// `STAMP-COUNTER`, which `init(_:)` reads.
  public var description: String { "\(stamp)-\(counter)" }
}

/// A commit of the server, and so a cursor: its number and its random ID (semantics 6). Number 0 is the state that
/// the server's database had before Salvor numbered anything; its ID is the server ID's text.
public struct Commit: Sendable, Hashable {
  /// Its place in the server's history, from 0; a server that was restored uses numbers again.
  public var number: Int64
  /// Tells it from a commit of another history with the same number.
  public var id: CommitID

  /// All parts given.
  public init(number: Int64, id: CommitID) {
    self.number = number
    self.id = id
  }
}

/// The number of the first commit that a start of the server made.
public struct Incarnation: Sendable, Hashable {
  /// The start of the server.
  public var id: IncarnationID
  /// The number of the first commit that this start made or would have made.
  public var firstCommit: Int64

  /// All parts given.
  public init(id: IncarnationID, firstCommit: Int64) {
    self.id = id
    self.firstCommit = firstCommit
  }
}

/// Where random bits come from: the system's generator, or a seeded one in simulation and tests.
public protocol RandomSource: Sendable {
  /// `count` random bytes. Safe on any thread; does not fail.
  func bytes(_ count: Int) -> [UInt8]
}

extension RandomSource {
  /// From 1 to 2^53 - 1, which every reader of JSON takes for what it is.
  public func positiveNumber() -> Int64 {
    max(1, bytes(7).reduce(Int64(0)) { $0 << 8 | Int64($1) } & 0x1F_FFFF_FFFF_FFFF)
  }
}

/// The generator of the operating system, for everything but simulation and tests.
public struct SystemRandom: RandomSource {
  /// Holds no state: one is as good as another.
  public init() {}
  /// `count` bytes that cannot be guessed.
  public func bytes(_ count: Int) -> [UInt8] {
    var generator = SystemRandomNumberGenerator()
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count + 7)
    // The system is asked at each `next`: for eight bytes at a time.
    while bytes.count < count { withUnsafeBytes(of: generator.next()) { bytes.append(contentsOf: $0) } }
    bytes.removeLast(bytes.count - count)
    return bytes
  }
}

/// What a clock is for here: timestamps people read, retention and time limits. No clock takes part in any decision
/// about data (semantics 6).
public protocol Clock: Sendable {
  /// Milliseconds since 1970-01-01T00:00:00Z.
  func now() -> Int64
  /// Returns when so many milliseconds have passed. Throws where the task is cancelled meanwhile.
  func sleep(milliseconds: Int64) async throws
}
