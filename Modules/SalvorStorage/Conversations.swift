import SalvorModel

/// A session or a recovery that is under way between a device and the server (semantics 4).
public struct Conversation: Sendable {
  public enum Kind: String, Sendable, CaseIterable {
    case session
    case recovery
    /// A recovery that was told to come back.
    case waiting
  }

  public var kind: Kind
  /// What the device names it by; of one that waits, a name that no device has.
  public var token: String
  public var remote: RemoteID
  public var principal: String
  public var subject: any ConversationSubject
  /// When the device was last heard of; of one that waits, when it is to come back. Milliseconds since 1970, by the clock of the
  /// process that says so.
  public var lastSeen: Int64

  public init(
    kind: Kind, token: String, remote: RemoteID, principal: String, subject: any ConversationSubject, lastSeen: Int64
  ) {
    self.kind = kind
    self.token = token
    self.remote = remote
    self.principal = principal
    self.subject = subject
    self.lastSeen = lastSeen
  }
}

/// What a conversation is about. Only the engine understands it.
public protocol ConversationSubject: Sendable {
  /// For a process that did not begin it. Up to megabytes.
  var bytes: [UInt8] { get }
}

/// A subject as a database has it.
public struct StoredSubject: ConversationSubject, Hashable {
  public var bytes: [UInt8]
  public init(bytes: [UInt8]) { self.bytes = bytes }
}

/// The conversations under way, as one look at them has them.
public protocol ConversationDesk {
  func find(_ token: String) throws -> Conversation?
  /// In the order in which they were begun.
  func all(_ kind: Conversation.Kind, of remote: RemoteID) throws -> [Conversation]
  /// How many there are; of a principal, where he is named.
  func count(_ kind: Conversation.Kind, principal: String?) throws -> Int
  /// The remotes of those that were last seen at `time` or later, each once.
  func remotes(_ kind: Conversation.Kind, seenSince time: Int64) throws -> [RemoteID]

  /// Takes the place of the one with its token.
  func put(_ conversation: Conversation) throws
  func touch(_ token: String, at time: Int64) throws
  /// Those of a principal that were last seen after `bound`.
  func touch(_ kind: Conversation.Kind, principal: String, seenAfter bound: Int64, at time: Int64) throws
  func remove(_ token: String) throws
  /// Those that were last seen at `time` or before it.
  func remove(_ kind: Conversation.Kind, seenBefore time: Int64) throws
  /// Of those that were last seen at `time` or before it, the longest unseen, until `count` are left of the kind, or none of them.
  func trim(_ kind: Conversation.Kind, to count: Int, seenBefore time: Int64) throws
}

/// Keeps the conversations under way. A server store that several processes open at once implements it: then a device may reach
/// another process with each request. Where the store does not, the engine keeps them in its memory.
public protocol ConversationKeeping: Sendable {
  /// Runs `body`, which decides before it writes.
  ///
  /// - Parameter name: nobody else runs a body of this name meanwhile, in no process; nil: `body` reads or writes one conversation
  ///   alone. The body may run again where the database was in the way.
  func conversing<Answer: Sendable>(
    _ name: String?, _ body: @Sendable (any ConversationDesk) throws -> Answer
  ) async throws -> Answer
}
