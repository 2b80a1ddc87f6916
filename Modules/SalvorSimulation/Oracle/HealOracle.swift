import SalvorModel
import SalvorStorage

/// What healing promises (semantics 10): after everybody who returns has synchronized, what the server had acknowledged and lost
/// with a restore is there again, or something newer took its place, or it is a conflict version, or nobody who returned may
/// offer it.
///
/// It knows nothing of offers. It sees the server's rows after each step, and who synchronized when without an error.
struct HealOracle: Sendable {
  /// A change of one row of the server, as the rows before and after a step show it.
  private struct Entry: Sendable {
    var id: Int
    var step: Int
    var name: RowName
    /// Nil: it was deleted.
    var row: [Value]?
    /// The device that made it; nil: a program, or nobody can tell.
    var author: Int?
    /// Of a row that was given back: the entry that had made it so. Lost again, it is as old as that one (decision 199).
    var origin: Int?
    /// Entries of one row by their age.
    var age: (Int, Int) { (origin ?? id, id) }
    /// Counts the restores, where it was lost with one.
    var epoch = 0
    /// Where it was lost: the copy has the row so, too.
    var isSame = false
  }

  /// A device, as far as it counts here.
  struct Device: Sendable {
    /// It came to the end of the history.
    var returns: Bool
    /// What it may give back of each table now.
    var heal: [String: HealMode]
    /// What its archive says to people, but for what it holds of lost rows.
    var archive: String
  }

  private var nextID = 0
  private var lineage: [Entry] = []
  private var lost: [Entry] = []
  private var backups: [Int: [Entry]] = [:]
  /// The step of each restore, the rows with changes that waited then, and the rows that each device had.
  private var restores: [(step: Int, waiting: Set<RowName>, held: [Set<RowName>])] = []
  /// When somebody last wrote a row where he is, and when each device did.
  private var lastWrite: [RowName: Int] = [:]
  private var lastWriteBy: [Int: [RowName: Int]] = [:]
  private var lastDeleteBy: [RowName: Int] = [:]
  /// The notes that each row had after somebody's transaction on a device, and which device that was.
  private var notesOfDevices: [RowName: [String: Int]] = [:]
  /// What each device may give back of each table, from each step on.
  private var settings: [(step: Int, heal: [[String: HealMode]])] = []
  /// The steps in which each device synchronized without an error.
  private var syncs: [Int: [Int]] = [:]
  /// The steps in which each device had no triggers, and the one in which it got another one's file.
  private var withoutTriggers: [Int: [Int]] = [:]
  private var replaced: [Int: Int] = [:]
  private var purged: Set<RowName> = []
  /// Conflict versions that restores took: the row, the note that it would write, its device, and the restore.
  private var versions: [(name: RowName, note: String, device: Int, epoch: Int)] = []
  /// What somebody wrote after a restore, and a version that the restore had taken stood in its place later.
  private var overwritten: [(name: RowName, note: String, by: String, epoch: Int)] = []
  /// The notes that came into each row of the server, also within one step, and the step in which each first did.
  private var passed: [RowName: [String: Int]] = [:]
  /// Notes that a person has sent again.
  private var sentAgain: Set<String> = []
  private var withdrawn = ""
  private let notePlaces: [String: Int]
  private let tables: Set<String>
  /// Tables in which the server's own triggers write: they fire for what is given back, too.
  private let counted: Set<String>
  /// Tables in which they make rows, of a key and nothing else.
  private let made: Set<String>
  private let references: [String: [(place: Int, table: String)]]

  init(schema: DrawnSchema) {
    notePlaces = Dictionary(uniqueKeysWithValues: schema.tables.map { ($0.name, $0.keyColumns.count) })
    counted = Set(
      schema.tables.map(\.name).filter { name in schema.serverCode.contains { $0.contains("UPDATE \(name) SET n") } })
    made = Set(
      schema.tables.map(\.name).filter { name in schema.serverCode.contains { $0.contains("INTO \(name) (id)") } })
    tables = Set(schema.synchronized.filter { $0.maintained != "server" }.map(\.name))
    references = Dictionary(
      uniqueKeysWithValues: schema.tables.map { table in
        let columns = table.columnList(schema).map(\.name)
        return (
          table.name,
          table.references.compactMap { reference in
            columns.firstIndex(of: reference.column).map { ($0, reference.table) }
          }
        )
      })
  }

  // MARK: What happens

  /// Somebody wrote where he is; nil: a program in the server's tables.
  mutating func wrote(_ device: Int?, _ before: Contents, _ after: Contents, step: Int) {
    for name in Set(before.keys).union(after.keys) where before[name] != after[name] && tables.contains(name.table) {
      lastWrite[name] = step
      lastDeleteBy[name] = after[name] == nil ? device : nil
      guard let device else { continue }
      lastWriteBy[device, default: [:]][name] = step
      if let note = note(after[name], name) { notesOfDevices[name, default: [:]][note] = device }
    }
  }

  /// A device has changes of these rows to send, also of such as it has not.
  mutating func touched(_ device: Int, _ rows: Set<RowName>, step: Int) {
    for name in rows where tables.contains(name.table) {
      lastWrite[name] = step
      lastWriteBy[device, default: [:]][name] = step
    }
  }

  mutating func synchronized(_ device: Int, step: Int) { syncs[device, default: []].append(step) }

  /// What is written on the device until it synchronizes is in no log: of tables that may have such rows it gives nothing back (decision 101).
  mutating func lostTriggers(_ device: Int, step: Int) { withoutTriggers[device, default: []].append(step) }

  /// The steps in which the device's file was synchronized.
  func synchronizations(of device: Int) -> [Int] { syncs[device] ?? [] }

  /// Another file stands in the place of the device's.
  ///
  /// - Parameters:
  ///   - synchronized: `synchronizations` of that one.
  ///   - isOther: it is another device's.
  mutating func wentBack(_ device: Int, synchronized: [Int], isOther: Bool, step: Int) {
    syncs[device] = synchronized
    if isOther { replaced[device] = step }
  }

  mutating func purged(_ name: RowName) { purged.insert(name) }

  mutating func configured(_ heal: [[String: HealMode]], step: Int) { settings.append((step, heal)) }

  /// The server's rows are others than after the last step.
  mutating func watched(_ before: Contents, _ now: Contents, step: Int) {
    for name in Set(before.keys).union(now.keys).sorted() where before[name] != now[name] && tables.contains(name.table)
    {
      noteOverwritten(name, before[name], now[name])
      nextID += 1
      var entry = Entry(id: nextID, step: step, name: name, row: now[name])
      if now[name] == nil {
        entry.author = lastDeleteBy[name]
      } else if let note = note(now[name], name), note != self.note(before[name], name) {
        // Who gives a row another key takes its note along, which may be of another device.
        entry.author = notesOfDevices[name]?[note]
      }
      if let note = note(entry.row, name), !sentAgain.contains(note) {
        let given = lost.filter { $0.name == name && self.note($0.row, name) == note }
        entry.origin = given.max { $0.age < $1.age }.map { $0.origin ?? $0.id }
      }
      lineage.append(entry)
    }
  }

  /// A note came into a row of the server.
  mutating func came(_ note: String, into name: RowName, step: Int) {
    if passed[name]?[note] == nil { passed[name, default: [:]][note] = step }
  }

  mutating func sentAgain(_ note: String) { sentAgain.insert(note) }

  /// A person took these notes out of a queue or an archive, also such as were to be given back.
  mutating func withdrawn(_ text: String) { withdrawn += text + "\n" }

  private mutating func noteOverwritten(_ name: RowName, _ old: [Value]?, _ new: [Value]?) {
    guard let restore = restores.last, let old = note(old, name), let new = note(new, name), old != new,
      wasLost(new, name), !wasLost(old, name), !sentAgain.contains(new),
      let written = lineage.first(where: { $0.name == name && note($0.row, name) == old }), written.step > restore.step,
      // Else it is a lost one, too: another note stood in its place when the step was over.
      passed[name]?[old].map({ $0 > restore.step }) ?? true
    else { return }
    overwritten.append((name, old, new, restores.count))
  }

  private func wasLost(_ note: String, _ name: RowName) -> Bool {
    lost.contains { $0.name == name && self.note($0.row, name) == note }
  }

  mutating func backedUp(_ slot: Int) { backups[slot] = lineage }

  /// The backup stands in the server's place.
  ///
  /// - Parameters:
  ///   - waiting: rows with changes on devices that the server was not seen to have.
  ///   - held: the rows that each device has.
  mutating func restored(_ slot: Int, step: Int, waiting: Set<RowName>, held: [Set<RowName>]) {
    let backup = backups[slot] ?? []
    restores.append((step, waiting, held))
    let kept = Set(backup.map(\.id))
    let rows = Dictionary(backup.map { ($0.name, $0.row) }) { $1 }
    // A newer copy brings back what an older one took.
    lost.removeAll { kept.contains($0.id) }
    for var entry in lineage where !kept.contains(entry.id) {
      entry.epoch = restores.count
      entry.isSame = (rows[entry.name] ?? nil) == entry.row
      lost.append(entry)
    }
    lineage = backup
  }

  /// A restore, the newest one, took these conflict versions.
  mutating func lost(_ taken: [ConflictVersion]) {
    for version in taken where version.client.offer == nil {
      let name = RowName(table: version.table, key: version.key.map(literal).joined(separator: ", "))
      for column in version.client.columns {
        guard let note = column.new.string, note.hasPrefix("d"), note.contains("."),
          let device = Int(note.dropFirst().prefix { $0 != "." })
        else { continue }
        versions.append((name, note, device, restores.count))
      }
    }
  }

  /// What was kept beside rows and lost is kept again.
  private func lostVersions(_ devices: [Device], _ server: Contents, conflicts: String) -> [Finding] {
    versions.compactMap { version in
      guard devices.indices.contains(version.device), devices[version.device].returns,
        devices[version.device].heal[version.name.table] != .off, !purged.contains(version.name),
        // He has heard of it.
        (syncs[version.device] ?? []).contains(where: { $0 < restores[version.epoch - 1].step }),
        !mentions(conflicts, version.note), !mentions(devices[version.device].archive, version.note),
        note(server[version.name], version.name) != version.note
      else { return nil }
      return Finding(
        message:
          "the conflict version \(version.note) of \(version.name) was lost with restore \(version.epoch), and d\(version.device) has not brought it back"
      )
    }
  }

  // MARK: What must be

  struct Finding: Sendable {
    var message: String
  }

  /// - Parameters:
  ///   - server: its rows now.
  ///   - conflicts: the values of its conflict versions.
  ///   - settled: the values that it had where it kept or settled a conflict.
  ///   - kept: the values of conflict versions of each row, by the place of their column.
  /// - Returns: what is wrong, and of how many lost rows it could be told.
  func judge(
    _ server: Contents, _ devices: [Device], conflicts: String, settled: String,
    kept: [RowName: [Int: [Value]]]
  ) -> (findings: [Finding], judged: Int) {
    var newest: [RowName: Entry] = [:]
    for entry in lost {
      // What was made later was made upon the other, or in a timeline that grew after the other was lost.
      if let known = newest[entry.name], known.age > entry.age { continue }
      newest[entry.name] = entry
    }
    var findings: [Finding] = []
    var judged = 0
    for (name, entry) in newest.sorted(by: { $0.key < $1.key }) {
      guard !purged.contains(name), let holder = holder(of: entry, devices) else { continue }
      if let note = note(entry.row, name),
        mentions(conflicts, note) || mentions(withdrawn, note)
          || devices.contains(where: { mentions($0.archive, note) })
      {
        continue
      }
      let isQuiet = isQuiet(entry)
      guard let row = entry.row else {
        guard isQuiet, mayStay(gone: entry, server, kept), let present = server[name] else { continue }
        // A trigger of the server's has made it, for another row that was given back.
        if made.contains(name.table), note(present, name) == nil { continue }
        judged += 1
        findings.append(
          Finding(
            message:
              "d\(holder) deleted \(name) by step \(entry.step), which was lost, and it is back: \(shown(present))"))
        continue
      }
      guard hasParents(row, name, server) else { continue }
      judged += 1
      if isQuiet {
        // What a deleted parent takes with it is no loss.
        let mayDiffer = !references(name).isEmpty || counted.contains(name.table)
        let isSame = server[name] == row || (mayDiffer && note(server[name], name) == note(row, name))
        // What was offered to a server that numbered the row anew, or has a newer copy of it, is kept beside it.
        if !isSame, !stands(row, beside: server[name], kept[name] ?? [:]) {
          findings.append(
            Finding(
              message:
                "\(name) was \(shown(row)) by step \(entry.step), which was lost; d\(holder) gives it back, and the server has \(server[name].map(shown) ?? "none")"
            ))
        }
      } else if let present = note(server[name], name), isOlder(present, than: entry), !wroteSince(entry, holder) {
        findings.append(
          Finding(
            message:
              "\(name) has \(present), which is older than the lost \(note(row, name) ?? "?") of step \(entry.step) that d\(holder) gives back"
          ))
      }
    }
    findings += lostVersions(devices, server, conflicts: conflicts)
    return (findings + silentlyOverwritten(conflicts + settled), judged)
  }

  /// Each value is in the row or in a conflict version of it.
  private func stands(_ row: [Value], beside present: [Value]?, _ kept: [Int: [Value]]) -> Bool {
    row.indices.allSatisfy { place in
      present.map { place < $0.count && $0[place] == row[place] } == true || kept[place]?.contains(row[place]) == true
    }
  }

  /// What was written after the parting stands against what is offered, or is listed as a conflict.
  private func silentlyOverwritten(_ conflicts: String) -> [Finding] {
    overwritten.compactMap { write in
      guard write.epoch == restores.count, !purged.contains(write.name), !mentions(conflicts, write.note) else {
        return nil
      }
      return Finding(
        message:
          "\(write.note) was written to \(write.name) after restore \(write.epoch), and the lost \(write.by) took its place in silence"
      )
    }
  }

  /// Who returned, has the row as the entry left it, and may offer it.
  private func holder(of entry: Entry, _ devices: [Device]) -> Int? {
    let restore = restores[entry.epoch - 1].step
    return devices.indices.first { number in
      let device = devices[number]
      let table = entry.name.table
      guard device.returns, device.heal[table] != .off, !entry.isSame || !wasOff(number, table, since: restore) else {
        return false
      }
      let known = syncs[number, default: []].filter { $0 < restore }
      // What nobody subscribes to has left the device.
      guard entry.row == nil || restores[entry.epoch - 1].held[number].contains(entry.name),
        hadTriggers(number, at: restore)
      else { return false }
      if entry.author == number { return known.contains { $0 >= entry.step } && (replaced[number] ?? -1) < entry.step }
      // What he only read he has with a later sync, and not with a first one, which brings no versions.
      return device.heal[table] == .all && !(entry.isSame && wasOff(number, table, since: restore, or: .own))
        && known.contains { $0 > entry.step } && (known.first ?? .max) < entry.step
    }
  }

  /// It had them, as far as it knows, in its first synchronization after the restore.
  private func hadTriggers(_ device: Int, at restore: Int) -> Bool {
    let known = syncs[device] ?? []
    let next = known.first { $0 >= restore } ?? .max
    return !(withoutTriggers[device] ?? []).contains { step in
      step < next && !known.contains { step < $0 && $0 < restore }
    }
  }

  /// It gave nothing back of the table at some time since: of a row that was the same on both sides it kept nothing then (decision 162).
  private func wasOff(_ device: Int, _ table: String, since step: Int, or other: HealMode = .off) -> Bool {
    let before = settings.last { $0.step <= step }.map { [$0] } ?? []
    return (before + settings.filter { $0.step > step }).contains { setting in
      let mode = setting.heal[device][table] ?? .off
      return mode == .off || (other == .own && mode != .all)
    }
  }

  /// Nobody has written the row since, and nothing that somebody wrote waited when it was lost.
  private func isQuiet(_ entry: Entry) -> Bool {
    let restore = restores[entry.epoch - 1]
    return (lastWrite[entry.name] ?? 0) <= restore.step && (lastWrite[entry.name] ?? 0) <= entry.step
      && !restore.waiting.contains(entry.name)
  }

  private func wroteSince(_ entry: Entry, _ device: Int) -> Bool {
    (lastWriteBy[device]?[entry.name] ?? 0) > entry.step
  }

  private func isOlder(_ note: String, than entry: Entry) -> Bool {
    guard let row = entry.row, self.note(row, entry.name) != note else { return false }
    return lost.contains { other in
      other.epoch == entry.epoch && other.age < entry.age && other.name == entry.name
        && self.note(other.row, other.name) == note && hasHeard(of: other)
    }
  }

  /// Its device has been told that the server had it. Else it sends it as what it is, a change that waits, and after what others offer.
  private func hasHeard(of entry: Entry) -> Bool {
    guard let author = entry.author else { return true }
    return (syncs[author] ?? []).contains { entry.step <= $0 && $0 < restores[entry.epoch - 1].step }
  }

  private func references(_ name: RowName) -> [(place: Int, table: String)] { references[name.table] ?? [] }

  private func hasParents(_ row: [Value], _ name: RowName, _ server: Contents) -> Bool {
    references(name).allSatisfy { place, table in
      row[place].isNull || server[RowName(table: table, key: literal(row[place]))] != nil
    }
  }

  /// A mass deletion waits for a person, and a row that others need stays.
  private func mayStay(gone entry: Entry, _ server: Contents, _ kept: [RowName: [Int: [Value]]]) -> Bool {
    let deletes = lost.count { $0.row == nil && $0.name.table == entry.name.table }
    guard deletes < 20, kept[entry.name] == nil else { return false }
    return !server.contains { name, row in
      references(name).contains { place, table in
        RowName(table: table, key: literal(row[place])) == entry.name
      }
    }
  }

  private func note(_ row: [Value]?, _ name: RowName) -> String? {
    guard let row, let place = notePlaces[name.table], place < row.count, let text = row[place].string,
      text.contains(".")
    else { return nil }
    return text
  }

  private func mentions(_ text: String, _ note: String) -> Bool {
    text.contains(note + "'") || text.contains(note + "\"") || text.contains(note + ")")
  }

  private func shown(_ row: [Value]) -> String {
    "(" + row.map { String($0.description.prefix(40)) }.joined(separator: ", ") + ")"
  }
}
