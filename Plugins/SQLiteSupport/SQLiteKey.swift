import SalvorModel

/// The key of an encrypted database file, as the SQLite that is linked takes it (`PRAGMA key`): a passphrase, or whatever else
/// that library reads in its place, such as `x'…'` for the bytes themselves. No description and no error shows it.
public struct SQLiteKey: Sendable, Hashable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  private let text: String

  /// - Throws: `key-refused` where the text is empty, or has U+0000 in it, at which SQLite would cut it.
  public init(_ text: String) throws {
    guard !text.isEmpty, !text.utf8.contains(0) else {
      throw SalvorError(
        .keyRefused,
        "The key of the database is \(text.isEmpty ? "empty" : "cut by a character U+0000"). Give another one.")
    }
    self.text = text
  }

  /// Always `***`.
  public var description: String { "***" }
  /// Always `***`.
  public var debugDescription: String { "***" }
  /// A mirror without children, so that `dump` shows nothing of the key.
  public var customMirror: Mirror { Mirror(self, children: []) }

  var literal: String { quotedText(text) }
}
