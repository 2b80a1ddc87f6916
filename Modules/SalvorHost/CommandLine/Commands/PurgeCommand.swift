import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorWire

extension Command {
  static let serverPurge = Command(
    "server purge", "server: erases rows for good: no device, upload or backup brings them back",
    discussion: """
      For a person's right to be forgotten. Each KEY is a row's key; where the key has several columns, one KEY is a word for
      each of them. A blob is x'00ff', an infinite number inf or -inf, a character that no command line takes \\u{0} (a backslash is
      \\u{5C} where the key itself has \\u{); what begins with - comes after --. The rows are deleted, and those that go with them by
      foreign keys (ON DELETE CASCADE), with what conflict versions, staging, blobs and recorded results hold of them, and
      every device is told to delete them. An upload that brings one again is refused (purged). A keyed hash of each key, no
      value, goes into the ledger DATABASE.salvor-purged, which a restore does not put back: the next start on a restored
      database applies it before it answers anybody. Keep that file with the database, and with its backups.

      What a program of yours writes into the server's tables is not held back. The keys stay in the change log until it is
      trimmed. Backups made before still hold the rows: those that the server lists are named, delete what need not be kept.

      --release frees the keys, so that rows with them may come again.

        salvor server purge person p-1077
        salvor server purge infraction i1 2
        salvor server purge person p-1077 --release
      """,
    arguments: ["TABLE", "KEY…"],
    options: [Option("release", "the keys may be used again"), .url]
  ) { invocation in
    let name = invocation.arguments[0]
    let words = Array(invocation.arguments.dropFirst())
    let releases = invocation.flags.contains("release")
    let done: JSONValue
    if let elsewhere = try invocation.administration() {
      done = try await elsewhere.call(
        "POST", "/admin/v1/purge",
        body: [
          "table": .string(name), "release": .bool(releases), "words": .array(words.map(JSONValue.string)),
        ])
      await elsewhere.close()
    } else {
      let configuration = try invocation.readConfiguration([.server]).get()
      let keys = try configuration.schema.purgeKeys(ofWords: words, of: name)
      let store = try await Host.openServerStore(configuration)
      do {
        guard let purging = store as? any PurgingServerStore else {
          throw SalvorError(.usage, "This server's storage module cannot purge. Use the storage \"sqlite\".")
        }
        let files = try configuration.snapshotFolder(of: store)
        try files?.removeAll()
        defer { try? files?.removeAll() }
        done = try await invocation.audited(releases ? "purge.release" : "purge", name, on: store) {
          releases
            ? ["table": .string(name), "released": .integer(try await purging.releasePurged(keys, of: name))]
            : [
              "table": .string(name), "purged": try await purging.purge(keys, of: name).json,
              "backups": await RecordedBackup.mayHold(store),
            ]
        }
      } catch {
        await store.close()
        throw error
      }
      await store.close()
    }
    invocation.terminal.json(done)
    if let count = done["released"]?.integer {
      invocation.terminal.say("freed \(count == 1 ? "1 key" : "\(grouped(count)) keys") of \(visible(name))")
    } else {
      let rows = done["purged"]?["rows"]?.integer ?? 0
      let along = done["purged"]?["along"]?.integer ?? 0
      let named = rows - along
      let more = "\(along == 1 ? "1 row" : "\(grouped(along)) rows") that went with \(named == 1 ? "it" : "them")"
      let others = along == 0 ? "" : " and \(more) (ON DELETE CASCADE)"
      invocation.terminal.say(
        "erased \(named == 1 ? "1 row" : "\(grouped(named)) rows") of \(visible(name))\(others); the ledger keeps \(rows == 1 ? "it" : "them") from coming back"
      )
      let backups = (done["backups"]?.array ?? []).compactMap { $0["path"]?.string }
      if !backups.isEmpty {
        invocation.terminal.say(
          "copies made before may hold \(rows == 1 ? "it" : "them") still; delete those that need not be kept:")
        for path in backups { invocation.terminal.say("  \(visible(path))") }
      }
    }
    return 0
  }
}
