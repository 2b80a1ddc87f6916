import SalvorModel

/// A session or a recovery that is under way between a device and the server (semantics 4).
public struct Conversation: Sendable {
  /// What a device does in it.
  public enum Kind: String, Sendable, CaseIterable {
    /// The device synchronizes.
    case session
    /// The device compares its rows with the server's, and fetches what differs.
    case recovery
    /// A recovery that was told to come back.
    case waiting
    /// Validators are asked about an upload, or were: a process holds what they said, and what is staged must not change.
    case judging
    /// A chunk is on its way into staging.
    case staging
  }

  /// Each kind is counted, and forgotten, by itself.
  public var kind: Kind
  /// What the device names it by; of one that waits, a name that no device has.
  public var token: String
  /// Of the device.
  public var remote: RemoteID
  /// The name of the principal who began it.
  public var principal: String
  /// What it is about; of one that waits, nothing.
  public var subject: any ConversationSubject
  /// When the device was last heard of; of one that waits, when it is to come back. Milliseconds since 1970, by the clock of the
  /// process that says so.
  public var lastSeen: Int64

  /// All parts given.
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
  /// As the subject gave them that was put.
  public var bytes: [UInt8]
  /// All parts given.
  public init(bytes: [UInt8]) { self.bytes = bytes }
}

/// The conversations under way, as one look at them has them. For use within the body that `ConversationKeeping` was
/// given, and not after it.
public protocol ConversationDesk {
  /// The conversation that has this token; nil: there is none.
  func find(_ token: String) throws -> Conversation?
  /// In the order in which they were begun.
  func all(_ kind: Conversation.Kind, of remote: RemoteID) throws -> [Conversation]
  /// How many there are; of a principal, where he is named.
  func count(_ kind: Conversation.Kind, principal: String?) throws -> Int
  /// The remotes of those that were last seen at `time` or later, each once.
  func remotes(_ kind: Conversation.Kind, seenSince time: Int64) throws -> [RemoteID]

  /// Takes the place of the one with its token, also in the order; one with a new token is the last.
  func put(_ conversation: Conversation) throws
  /// The device was heard of at `time`. Does nothing where no conversation has the token.
  func touch(_ token: String, at time: Int64) throws
  /// Likewise those of a principal that were last seen after `bound`.
  func touch(_ kind: Conversation.Kind, principal: String, seenAfter bound: Int64, at time: Int64) throws
  /// Forgets a conversation. Does nothing where none has the token.
  func remove(_ token: String) throws
  /// Forgets those that were last seen at `time` or before it.
  func remove(_ kind: Conversation.Kind, seenBefore time: Int64) throws
  /// Of those that were last seen at `time` or before it, forgets the longest unseen, until `count` of the kind are
  /// left or no such one is.
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
