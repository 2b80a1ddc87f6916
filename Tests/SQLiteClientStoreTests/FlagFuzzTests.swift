import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// Random statements of an application on tables with flag columns: after each, what the log and the unmarked rows say of
/// the bases is exactly what was downloaded, and each marked row has a request that deletes it.
/// SALVOR_FUZZ_SEED and SALVOR_FUZZ_COMPARISONS choose other seeds.
@Suite struct FlagFuzzTests {
  static let seeds: [UInt64] = (0..<(environment("SALVOR_FUZZ_COMPARISONS") ?? 40)).map {
    (environment("SALVOR_FUZZ_SEED") ?? 1) &+ $0
  }

  private struct Statements {
    var random: Seeded

    mutating func key() -> String { random.pick(["'a'", "'b'", "'c'", "'d'"]) }
    mutating func value() -> String { random.pick(["NULL", "'x'", "'y'", "'z'"]) }
    mutating func flag() -> String { random.pick(["0", "1", "1", "NULL", "2"]) }

    mutating func next() -> String {
      let table = random.pick(["inspection", "answer", "answer", "comment"])
      let column = ["inspection": "title", "answer": "note", "comment": "text"][table] ?? ""
      let parent = ["answer": "inspection_id", "comment": "answer_id"][table]
      let condition = random.oneIn(4) ? "1" : "id = \(key())"
      let or = random.pick(["", "", "", "OR REPLACE ", "OR IGNORE "])
      let isFlagged = table != "comment"
      var names = ["id", column]
      var values = [key(), value()]
      if let parent {
        names.append(parent)
        values.append(key())
      }
      if isFlagged, random.oneIn(3) {
        names.append("IsDeleted")
        values.append(flag())
      }
      switch random.below(10) {
      case 0, 1:
        return "INSERT \(or)INTO \(table) (\(names.joined(separator: ", "))) VALUES (\(values.joined(separator: ", ")))"
      case 2:
        return "INSERT INTO \(table) (\(names.joined(separator: ", "))) VALUES (\(values.joined(separator: ", "))) "
          + "ON CONFLICT (id) DO UPDATE SET \(column) = \(value())\(isFlagged ? ", IsDeleted = \(flag())" : "")"
      case 3: return "DELETE FROM \(table) WHERE \(condition)"
      case 4: return "UPDATE \(or)\(table) SET id = \(key()) WHERE id = \(key())"
      case 5: return "UPDATE \(table) SET \(column) = \(value()) WHERE \(condition)"
      case 6 where isFlagged:
        return
          "UPDATE \(table) SET \(column) = \(value()), IsDeleted = \(flag()), IsDirty = \(flag()) WHERE \(condition)"
      default:
        return isFlagged
          ? "UPDATE \(or)\(table) SET IsDeleted = \(flag()) WHERE \(condition)"
          : "UPDATE \(table) SET \(parent ?? column) = \(key()) WHERE \(condition)"
      }
    }
  }

  @Test(arguments: seeds) func theLogGivesBackWhatWasDownloaded(_ seed: UInt64) async throws {
    var bench = try await StoreBench(inspectionTables)
    let downloaded: [(String, Row)] = [
      ("inspection", ["a", "x", .null]), ("inspection", ["b", .null, .null]), ("answer", ["a", "a", "1"]),
      ("answer", ["b", "a", "2"]), ("answer", ["c", "b", "2"]), ("comment", ["a", "a", "t"]),
      ("comment", ["b", "c", "t"]),
    ]
    _ = try await bench.download(full: ["inspection", "answer", "comment"], downloaded)
    let bases = Dictionary(grouping: downloaded, by: \.0).mapValues { $0.map(\.1) }
    var statements = Statements(random: Seeded(seed))
    let connection = try SQLiteConnection(bench.path)
    try connection.execute("PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = \(seed % 2 == 0 ? "ON" : "OFF")")
    if seed % 3 == 0 {
      try connection.execute(
        """
        CREATE TRIGGER touch AFTER UPDATE ON answer BEGIN UPDATE inspection SET modified = NEW.note WHERE id = NEW.inspection_id; END;
        CREATE TRIGGER touch_answer AFTER UPDATE OF IsDeleted ON inspection BEGIN UPDATE answer SET note = 'touched' WHERE id = 'b'; END
        """)
      // SQLite fires the newest trigger first: a session puts Salvor's own behind those.
      _ = try await bench.store.beginSession(groups: nil)
      await bench.store.endSession()
    }
    var trace = ""
    for _ in 0..<60 {
      let statement = statements.next()
      do {
        try connection.execute(statement)
        trace += statement + ";\n"
      } catch is SalvorError {
        continue
      }
      do {
        let found = try await bench.store.bases()
        try #require(found == bases, "seed \(seed) after\n\(trace)")
      } catch let error as SalvorError {
        Issue.record("seed \(seed) after\n\(trace): \(error)")
        return
      }
      let left = try connection.rows("SELECT count(*) FROM salvor_marking")
      #expect(left == [[0]], "rows are left under way after \(trace)")
    }
    let (_, session) = try await bench.uploadText()
    try await bench.accept(session)
    // A mark is left only where a row that is there needs its row, until the download says what became of both.
    #expect(
      try bench.read(
        """
        SELECT count(*) FROM answer WHERE IsDirty UNION ALL SELECT count(*) FROM inspection WHERE IsDirty UNION ALL
        SELECT count(*) FROM answer a WHERE IsDeleted AND NOT EXISTS (SELECT 1 FROM comment WHERE answer_id = a.id) UNION ALL
        SELECT count(*) FROM inspection i WHERE IsDeleted AND NOT EXISTS (SELECT 1 FROM answer WHERE inspection_id = i.id)
        """) == [[0], [0], [0], [0]], "seed \(seed) after\n\(trace)")
    #expect(try bench.read("PRAGMA foreign_key_check") == [], "seed \(seed) after\n\(trace)")
    #expect(try bench.read("PRAGMA integrity_check") == [["ok"]], "seed \(seed) after\n\(trace)")
  }
}
