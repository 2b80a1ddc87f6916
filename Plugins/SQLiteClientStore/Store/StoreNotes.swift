import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a person has to know and nobody has seen yet (`salvor_note`): whoever mends something at a look at the file notes it
/// here, in the transaction that mends it.
extension SQLiteConnection {
  /// The same said twice is one note.
  func note(_ texts: some Sequence<String>, at time: Int64) throws {
    for text in texts {
      try run(
        "INSERT INTO salvor_note (at, text) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM salvor_note WHERE text = ?2)",
        .integer(time), .text(text))
      try run("DELETE FROM salvor_note WHERE id <= (SELECT max(id) FROM salvor_note) - \(heldNotesMax)")
    }
  }
}

/// The newest are kept where nobody looks for long.
private let heldNotesMax = 200

extension SQLiteClientStore: NotingClientStore {
  /// Oldest first; at most 200 are held. Can be asked while capture is paused.
  public func notes() throws -> [StoreNote] {
    try openedEvenPaused().connection.rows("SELECT id, at, text FROM salvor_note ORDER BY id").compactMap { row in
      guard let number = row[0].integer, let time = row[1].integer, let text = row[2].string else { return nil }
      return StoreNote(number: number, time: time, text: text)
    }
  }

  /// Removes the notes with this number or a smaller one.
  public func forgetNotes(upTo number: Int64) throws {
    let connection = try openedEvenPaused().connection
    try connection.transaction { try connection.run("DELETE FROM salvor_note WHERE id <= ?1", .integer(number)) }
  }
}
