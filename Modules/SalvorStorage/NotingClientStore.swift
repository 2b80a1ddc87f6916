import SalvorModel

/// A store that keeps what a person has to know until somebody has seen it (semantics 9, *Notes*): what opening the database
/// mended, whichever command found it.
public protocol NotingClientStore: ClientStore {
  /// The oldest first.
  func notes() async throws -> [StoreNote]

  /// Notes up to this one were shown.
  func forgetNotes(upTo number: Int64) async throws
}

/// Something a person has to know, without values of rows.
public struct StoreNote: Sendable, Hashable {
  public var number: Int64
  /// Milliseconds since 1970.
  public var time: Int64
  public var text: String
  public init(number: Int64, time: Int64, text: String) {
    self.number = number
    self.time = time
    self.text = text
  }
}
