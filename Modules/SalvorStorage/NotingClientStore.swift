import SalvorModel

/// A store that keeps what a person has to know until somebody has seen it (semantics 9, *Notes*): what opening the database
/// mended, whichever command found it.
public protocol NotingClientStore: ClientStore {
  /// What nobody has seen yet, the oldest first. Reading it marks nothing as seen.
  func notes() async throws -> [StoreNote]

  /// Notes up to this one were shown: they are forgotten. Later ones stay.
  func forgetNotes(upTo number: Int64) async throws
}

/// Something a person has to know, without values of rows.
public struct StoreNote: Sendable, Hashable {
  /// Among the notes that are there a later one has the higher number. Once all are forgotten, numbers may come again.
  public var number: Int64
  /// Milliseconds since 1970.
  public var time: Int64
  /// Sentences for a person: what happened, and what to do.
  public var text: String
  /// All parts given.
  public init(number: Int64, time: Int64, text: String) {
    self.number = number
    self.time = time
    self.text = text
  }
}
