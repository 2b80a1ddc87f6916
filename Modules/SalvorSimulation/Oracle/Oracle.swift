import SalvorModel

/// Keeps account of every change that was ever made, and knows nothing of the stores: it sees what a SELECT shows on
/// either side, what the archive says to people, and what the server's tables went through.
///
/// Every write of a simulation puts a note into its row that no other write puts there. So a note on the server is a
/// change that arrived, and a note that is nowhere is a change that was lost.
struct Oracle {
  /// A change of a device that the server was not seen to have.
  struct Pending: Sendable, Hashable {
    var note: String
    var step: Int
    /// It was written while Salvor's triggers were away: a sync finds it by comparing.
    var isUncaptured = false
  }

  /// A note that came into a row of the server.
  struct Event: Sendable {
    var name: RowName
    var note: String
    /// Of the row then; nil: its table has none.
    var owner: String?
    var region: String?
  }

  /// What a device's file has to account for.
  struct Account: Sendable {
    var pending: [RowName: Pending]
    var isWithoutTriggers: Bool
    var device: Int
    var synchronizations: [Int]
  }

  /// The devices whose triggers the application has dropped, until the next sync puts them back.
  private var withoutTriggers: Set<Int> = []

  /// By device.
  private(set) var pending: [[RowName: Pending]]
  /// The notes that each row of the server has ever had.
  private var seen: [RowName: Set<String>] = [:]
  /// The same since the server was last put back or replaced, in order, each time that it changed.
  private var course: [RowName: [String]] = [:]
  /// How often somebody put a note into a row.
  private var writes: [RowName: [String: Int]] = [:]
  /// The rows that somebody has deleted.
  private var deleted: Set<RowName> = []
  private var server: Contents = [:]
  private(set) var violations: [Violation] = []
  private var told: Set<String> = []
  var step: Int?
  private let notePlaces: [String: Int]
  private let synchronized: Set<String>
  /// Every note that a statement holds which somebody ran.
  private var drawn: Set<String> = []
  /// Of a note that a device wrote over another one: which one that was. A statement writes its note into many rows.
  private var madeOn: [RowName: [String: String]] = [:]
  /// Tables in which the server's newer row stands.
  private let serverStands: Set<String>
  private let hasValidator: Bool
  private let principals: [String]
  /// Notes that a person has put into rows by resolving a conflict.
  private var resolved: Set<String> = []
  var deletes: LostDeletes
  private var queues = SharedQueues()
  var heal: HealOracle
  /// Rows that an operator has purged.
  private var erased: Set<RowName> = []
  /// Of these, the ones that no program has made again.
  private var purged: Set<RowName> = []

  init(schema: DrawnSchema, principals: [String], hasValidator: Bool = false) {
    self.hasValidator = hasValidator
    self.principals = principals
    deletes = LostDeletes(schema: schema, devices: principals.count)
    heal = HealOracle(schema: schema)
    serverStands = Set(
      schema.tables.filter { $0.policy == "server-wins" || $0.policy == "keep-versions" }.map(\.name))
    pending = Array(repeating: [:], count: principals.count)
    synchronized = Set(schema.synchronized.map(\.name))
    notePlaces = Dictionary(uniqueKeysWithValues: schema.tables.map { ($0.name, $0.keyColumns.count) })
  }

  mutating func report(_ rule: Violation.Rule, _ message: String) {
    guard told.insert(rule.rawValue + message).inserted, violations.count < 20 else { return }
    violations.append(Violation(rule: rule, message: message, step: step))
  }

  /// The note of a row; nil where it has none of a simulation's.
  func note(_ row: [Value]?, _ name: RowName) -> String? {
    guard let row, let place = notePlaces[name.table], place < row.count, let text = row[place].string,
      text.contains(".")
    else { return nil }
    return text
  }

  // MARK: Writes

  /// Somebody runs this statement.
  mutating func runs(_ sql: String) {
    for (place, part) in sql.split(separator: "'", omittingEmptySubsequences: false).enumerated() where place % 2 == 1 {
      if part.contains(".") { drawn.insert(String(part)) }
    }
  }

  /// A statement of a transaction was run: what a later one of the same transaction writes over was written, too.
  mutating func ran(_ before: Contents, _ after: Contents) {
    for (name, row) in after where before[name] != row {
      // A change of other columns alone goes with the row's note, which may be the server's.
      guard let note = note(row, name), self.note(before[name], name) != note else { continue }
      writes[name, default: [:]][note, default: 0] += 1
    }
    for name in before.keys where after[name] == nil { deleted.insert(name) }
  }

  /// An application's transaction on a device was committed.
  mutating func captured(_ device: Int, _ before: Contents, _ after: Contents) {
    for (name, row) in after where before[name] != row && synchronized.contains(name.table) {
      guard let note = note(row, name) else {
        // A trigger of the application's has put another row in its place.
        if self.note(before[name], name) != nil { pending[device][name] = nil }
        continue
      }
      guard self.note(before[name], name) != note else { continue }
      // An edit of a row with an edit that was refused is made on what came with the refusal.
      madeOn[name, default: [:]][note] = pending[device][name] == nil ? self.note(before[name], name) : nil
      // What devices write to it is refused and erased, also where a program has made it again.
      if erased.contains(name) { continue }
      pending[device][name] = Pending(
        note: note, step: step ?? -1, isUncaptured: withoutTriggers.contains(device))
    }
    for name in before.keys where after[name] == nil { pending[device][name] = nil }
  }

  mutating func lostTriggers(_ device: Int) {
    withoutTriggers.insert(device)
    heal.lostTriggers(device, step: step ?? .max)
  }

  /// Something was done after which a change may stand on another row than the one that it was made on: a retry, a recovery.
  mutating func forgetOrigins() { madeOn = [:] }

  /// A sync without an error: triggers are back, and what was written without them was found.
  mutating func synchronized(_ device: Int) {
    withoutTriggers.remove(device)
    if let step { heal.synchronized(device, step: step) }
  }

  /// Nil: a program in the server's tables.
  mutating func wrote(_ device: Int?, _ before: Contents, _ after: Contents) {
    heal.wrote(device, before, after, step: step ?? .max)
    if device == nil { purged.subtract(after.keys.filter { before[$0] == nil }) }
  }

  /// A device has changes of these rows to send that it had not before, whatever its tables show: a row that they do not show was
  /// made and deleted, perhaps by one statement, and other devices may have a row of its key.
  mutating func touched(_ device: Int, _ rows: Set<RowName>, _ after: Contents) {
    heal.touched(device, rows, step: step ?? .max)
    deleted.formUnion(rows.filter { after[$0] == nil })
  }

  /// An operator erased the row: nobody has to account for changes of it, and it never comes back.
  mutating func purge(_ name: RowName) {
    purged.insert(name)
    erased.insert(name)
    heal.purged(name)
    deleted.insert(name)
    for device in pending.indices { pending[device][name] = nil }
  }

  /// The server's schema drops the table: its rows on the server are not compared any more.
  mutating func dropped(_ table: String) {
    deleted.formUnion(server.keys.filter { $0.table == table })
    server = server.filter { $0.key.table != table }
  }

  func isPurged(_ name: RowName) -> Bool { purged.contains(name) }

  mutating func configured(_ heal: [[String: HealMode]]) { self.heal.configured(heal, step: step ?? -1) }

  mutating func backedUp(_ slot: Int) {
    heal.backedUp(slot)
    deletes.backedUp(slot)
  }

  /// A backup stands in the server's place.
  mutating func restored(_ slot: Int, to now: Contents, waiting: Set<RowName>, held: [Set<RowName>]) {
    serverWentBack(to: now, slot: slot)
    heal.restored(slot, step: step ?? .max, waiting: waiting, held: held)
  }

  /// A person asked for this note to be sent again.
  mutating func reapplied(_ name: RowName, _ note: String) {
    writes[name, default: [:]][note, default: 0] += 1
    heal.sentAgain(note)
  }

  /// A person let a conflict version of the client's stand.
  mutating func resolved(_ name: RowName, _ note: String) {
    reapplied(name, note)
    resolved.insert(note)
  }

  /// A person took these notes out of the queue or the archive of a device.
  mutating func withdrawn(_ device: Int, _ text: String) {
    pending[device] = pending[device].filter { !text.contains("'\($0.value.note)'") }
    heal.withdrawn(text)
  }

  /// A device's file is what it was; so is what it has to account for.
  mutating func wentBack(_ device: Int, to account: Account) {
    pending[device] = account.pending
    deletes.forget(device)
    heal.wentBack(
      device, synchronized: account.synchronizations, isOther: account.device != device, step: step ?? .max)
    if account.isWithoutTriggers { withoutTriggers.insert(device) } else { withoutTriggers.remove(device) }
  }

  /// Another device has this one's file. Notes that a later one went over are in its queue, too.
  mutating func cloned(_ device: Int) {
    for name in pending[device].keys {
      queues.cloned((writes[name] ?? [:]).keys.filter { !serverHasSeen(name, $0) }.map { (name, $0) })
    }
  }

  func account(of device: Int) -> Account {
    Account(
      pending: pending[device], isWithoutTriggers: withoutTriggers.contains(device), device: device,
      synchronizations: heal.synchronizations(of: device))
  }

  // MARK: The server

  /// What the rows of the server went through, in order, and what they are now.
  mutating func watched(_ events: [Event], _ now: Contents) {
    // By row: the last of its notes before, and after.
    let before = Dictionary(events.compactMap { event in course[event.name]?.last.map { (event.name, $0) } }) { $1 }
    let after = Dictionary(events.map { ($0.name, $0.note) }) { $1 }
    for event in events where event.note.contains(".") {
      let (name, note) = (event.name, event.note)
      seen[name, default: []].insert(note)
      heal.came(note, into: name, step: step ?? .max)
      judgeRefusal(name, note)
      if course[name]?.last == note { continue }
      judgeScope(event)
      course[name, default: []].append(note)
      // The requests that led to the note that the row has, sent by their own device after another one gave the row back: in between it had an
      // older one, which nobody saw.
      if note == before[name], note == after[name] { writes[name]?[note]? += 1 }
      let times = course[name, default: []].count { $0 == note }
      let written = (writes[name]?[note]).map { $0 + queues.more(note, in: name) } ?? 0
      if !drawn.contains(note) {
        report(.disappeared, "the server's row \(name) has the note \(note), which nobody wrote")
      } else if written > 0, times > written {
        // Notes that a later statement of their transaction wrote over are not counted.
        report(
          .appliedTwice, "the note \(note) came into the server's row \(name) \(times) times, written \(written) times")
      }
    }
    for name in server.keys.sorted() where now[name] == nil && !deleted.contains(name) {
      report(.disappeared, "the server's row \(name) is gone, and nobody deleted it")
    }
    for name in purged.sorted() where now[name] != nil {
      report(.purgedReturned, "the row \(name), which was erased for good, is on the server again")
    }
    heal.watched(server, now, step: step ?? .max)
    deletes.watched(server, now)
    server = now
  }

  /// What should have been refused.
  private mutating func judgeRefusal(_ name: RowName, _ note: String) {
    let writer = note.prefix { $0 != "." }
    guard writer.hasPrefix("d") else { return }
    if hasValidator, SimulatedValidator.refuses(note) {
      report(.notRefused, "the validator refuses the note \(note), and the server's row \(name) has it")
    }
    guard serverStands.contains(name.table), let origin = madeOn[name]?[note], let course = course[name],
      let last = course.last, last != note, last != origin, last.prefix(while: { $0 != "." }) != writer,
      let place = course.lastIndex(of: origin), !course[place...].contains(note)
    else { return }
    report(
      .notRefused,
      "the note \(note), made on \(origin), went over \(last) in the server's row \(name), where the server's row has to stand"
    )
  }

  /// Nobody writes outside of his scope, and no write hands a row to another one.
  private mutating func judgeScope(_ event: Event) {
    guard event.note.hasPrefix("d"), !resolved.contains(event.note),
      let number = Int(event.note.dropFirst().prefix { $0 != "." }), principals.indices.contains(number)
    else { return }
    let principal = principals[number]
    let isOutside =
      event.owner.map { $0 != principal } == true
      || event.region.map { SimulatedAuthentication.regions[principal]?.contains($0) != true } == true
    guard isOutside else { return }
    report(
      .notRefused,
      "the note \(event.note) of \(principal) came into the server's row \(event.name), which is \(event.owner ?? event.region ?? "")'s"
    )
  }

  /// The server's files were put back or replaced.
  mutating func serverWentBack(to now: Contents, slot: Int? = nil) {
    course = [:]
    deletes.serverWentBack(to: now, slot: slot)
    if slot == nil { queues.serverWasReplaced() }
    forgetOrigins()
    server = now
    for (name, row) in now {
      if let note = note(row, name) { course[name] = [note] }
    }
  }

  func serverHasSeen(_ name: RowName, _ note: String) -> Bool { seen[name]?.contains(note) == true }

  /// A device has synchronized without an error; `before`: what it showed then.
  ///
  /// - Parameters:
  ///   - byComparing: it recovered. What it compares says of a row that is not there neither that it was deleted nor that it was lost.
  ///   - recovered: by a strategy that keeps account, since the server had lost commits.
  ///   - archived: the rows whose deletes are in the archive.
  mutating func deletesAfterSync(
    _ device: Int, _ before: Contents, _ after: Contents, byComparing: Bool, recovered: Bool,
    archived: () -> Set<RowName>
  ) {
    if recovered {
      let archived = archived()
      for name in deletes.returned(device, before, after, server) where !archived.contains(name) {
        report(.disappeared, "the delete of row \(name), which the server lost, is in no archive of d\(device)")
      }
    }
    if byComparing { deletes.compared(device, after) }
    deletes.synchronized(device, after, server)
  }

  // MARK: The account

  /// Forgets what the server was seen to have; true where something else than the device's rows has to be asked for the rest.
  mutating func hasUnsettled(_ device: Int, rows: Contents, dirty: Set<RowName>) -> Bool {
    var isUnsettled = false
    for (name, change) in pending[device] {
      if serverHasSeen(name, change.note) {
        pending[device][name] = nil
      } else if isStillAway(device, change), note(rows[name], name) == change.note {
        continue
      } else if note(rows[name], name) != change.note || !dirty.contains(name) {
        isUnsettled = true
      }
    }
    return isUnsettled
  }

  /// What a device has to account for is in its queue, in its archive, on the server, or was there.
  ///
  /// - Parameters:
  ///   - dirty: the rows with changes that are not settled.
  ///   - archive: the archive's texts.
  ///   - conflicts: the conflict versions that the server keeps.
  mutating func account(
    _ device: Int, rows: Contents, dirty: Set<RowName>, archive: String, conflicts: String
  ) {
    for (name, change) in pending[device].sorted(by: { $0.key < $1.key }) {
      let isShown = note(rows[name], name) == change.note
      if isShown && (dirty.contains(name) || isStillAway(device, change)) { continue }
      if mentions(archive, change.note) { continue }
      pending[device][name] = nil
      if mentions(conflicts, change.note) { continue }
      let away = change.isUncaptured ? " (written without triggers)" : ""
      let change = "the change \(change.note) of step \(change.step)\(away) to d\(device)'s row \(name)"
      report(
        .unaccounted,
        isShown
          ? "\(change) is shown as if it were settled; the server never had it"
          : "\(change) is neither in the queue, the archive nor on the server; the row has \(rows[name].map(shown) ?? "gone")"
      )
    }
  }

  /// A row that goes from a device with a sync, though nobody deleted it and the server has none, is one that the server
  /// lost: the archive has it (semantics 9).
  mutating func lost(_ device: Int, _ before: Contents, _ after: Contents, archive: () -> String) {
    var text: String?
    for (name, row) in before.sorted(by: { $0.key < $1.key }) {
      guard after[name] == nil, synchronized.contains(name.table), server[name] == nil, !deleted.contains(name),
        let note = note(row, name), serverHasSeen(name, note)
      else { continue }
      if text == nil { text = archive() }
      if let text, mentions(text, note) { continue }
      report(
        .disappeared, "the row \(name) with \(note), which the server lost, went from d\(device) and is in no archive")
    }
  }

  private func isStillAway(_ device: Int, _ change: Pending) -> Bool {
    change.isUncaptured && withoutTriggers.contains(device)
  }

  /// Notes are numbers with points: a longer one may begin with a shorter one.
  private func mentions(_ text: String, _ note: String) -> Bool {
    text.contains(note + "'") || text.contains(note + "\"") || text.contains(note + ")")
  }

  // MARK: Convergence

  /// After quiet syncs both sides have the same rows, but for those with changes that are not settled.
  mutating func compare(
    _ device: Int, expected: Contents, found: Contents, except dirty: Set<RowName>
  ) {
    var count = 0
    for name in Set(expected.keys).union(found.keys).sorted() where expected[name] != found[name] {
      guard !dirty.contains(name) else { continue }
      count += 1
      guard count <= 3 else { continue }
      let here = found[name].map(shown) ?? "none"
      let there = expected[name].map(shown) ?? "none"
      report(.differs, "row \(name): d\(device) has \(here), the server \(there)")
    }
  }

  private func shown(_ row: [Value]) -> String {
    "(" + row.map { String($0.description.prefix(40)) }.joined(separator: ", ") + ")"
  }
}
