import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorWire

extension Command {
  static let capturePause = Command(
    "capture pause", "before a migration of the application's own: takes the triggers away",
    discussion: """
      Between pause and resume the application may change its tables as it likes: no trigger is in its way, and no sync
      runs (exit code 2, capture-paused). What the synchronized tables hold is kept aside, so that resume finds what the
      migration did to their rows: it needs room for a copy of them.

        salvor capture pause
        sqlite3 field.db < migration.sql
        salvor capture resume

      A crash between the two leaves it paused: `status` says since when.
      """
  ) { invocation in
    let client = try await invocation.makeClient()
    let since = try await client.pauseCapture()
    await client.close()
    invocation.terminal.json(["pausedSince": .integer(since)])
    invocation.terminal.say("capture is paused since \(moment(since)); salvor capture resume ends it")
    return 0
  }

  static let captureResume = Command(
    "capture resume", "after the migration: captures what it changed, and goes on",
    discussion: """
      The tables must be what the schema says now. What they lack is added, a rename that the schema declares
      (renamedFrom) is followed, anything else is refused by name, and capture stays paused. Each row that is another than
      it was is a change that waits, as if it had been captured.
      """
  ) { invocation in
    let client = try await invocation.makeClient()
    let found = try await client.resumeCapture()
    await client.close()
    let terminal = invocation.terminal
    terminal.json([
      "inserts": .integer(found.inserts), "updates": .integer(found.updates), "deletes": .integer(found.deletes),
      "added": .array(found.added.map(JSONValue.string)),
    ])
    terminal.say(
      "capture goes on; the migration made \(grouped(found.inserts)) inserts, \(grouped(found.updates)) updates and "
        + "\(grouped(found.deletes)) deletes that wait now")
    if !found.added.isEmpty { terminal.say("added as the schema says: \(found.added.joined(separator: ", "))") }
    return 0
  }

  static let rekey = Command(
    "rekey", "encrypts the device's database with another key",
    discussion: """
      For a database with client.storage.key. The new key is read from an environment variable, so that no list of processes
      and no history of a shell has it. No other program may have the database open, and no sync runs meanwhile. It is one
      transaction: a crash leaves the old key. Backups of recoveries keep the key that they were made with.

        NEW_KEY=... salvor rekey --new-key NEW_KEY

      The configuration still gives the old key: put the new one in its place.
      """,
    options: [Option("new-key", value: "VARIABLE", "the environment variable that holds the new key")]
  ) { invocation in
    guard let name = invocation.options["new-key"], let key = invocation.environment[name], !key.isEmpty else {
      throw SalvorError(
        .usage, "Name the environment variable that holds the new key: NEW_KEY=... salvor rekey --new-key NEW_KEY.")
    }
    let client = try await invocation.makeClient()
    do { try await client.changeKey(to: key) } catch {
      await client.close()
      throw error
    }
    await client.close()
    invocation.terminal.json(["rekeyed": true])
    invocation.terminal.say("the database has the new key; put it into the configuration, in the place of the old one")
    return 0
  }

  static let detach = Command(
    "detach", "leaves plain tables and nothing of Salvor in the device's database",
    discussion: """
      The tables stay with the rows that they show; Salvor's tables, views and triggers go, and its files beside the
      database. Backups of recoveries stay: `salvor backups delete` removes them, before. While there are requests that
      the server does not have this is refused, unless --discard is given. The server still knows the remote ID:
      `salvor remotes delete` makes it forget it.

      One empty file stays beside the database, *.salvor-detached: with it nothing but `sync`, `register` and `subscribe`
      takes the tables in again (each row as a new one); every other command ends with `detached` (exit code 2), and so
      does a `sync --watch` that runs.
      """,
    options: [
      Option("plan", "say what would go; write nothing"),
      Option("discard", "also where requests are lost with it"),
    ]
  ) { invocation in
    let client = try await invocation.makeClient()
    let isPlan = invocation.flags.contains("plan")
    let plan =
      isPlan
      ? try await client.planDetachment()
      : try await client.detach(discarding: invocation.flags.contains("discard"))
    await client.close()
    let terminal = invocation.terminal
    terminal.json(["detached": .bool(!isPlan), "plan": plan.json])
    let verb = isPlan ? "would go" : "are gone"
    terminal.say("\(grouped(plan.objects)) tables, views, indexes and triggers of Salvor's \(verb)")
    if plan.unsynced > 0 {
      terminal.say(
        "\(grouped(plan.unsynced)) requests that the server does not have \(verb): \(plan.queued) waiting, "
          + "\(plan.inError) in error, \(plan.displaced) displaced, \(plan.kept) kept")
    }
    if plan.aside > 0 { terminal.say("\(grouped(plan.aside)) rows of client-only tables, kept aside, \(verb)") }
    for file in plan.files { terminal.say("\(file) \(isPlan ? "would go" : "is gone")") }
    if plan.backups > 0 { terminal.say("\(grouped(plan.backups)) backups of recoveries stay") }
    return 0
  }
}

extension DetachmentPlan {
  var json: JSONValue {
    [
      "queued": .integer(queued), "inError": .integer(inError), "displaced": .integer(displaced),
      "kept": .integer(kept), "aside": .integer(aside), "objects": .integer(objects),
      "files": .array(files.map(JSONValue.string)),
      "backups": .integer(backups),
    ]
  }
}
