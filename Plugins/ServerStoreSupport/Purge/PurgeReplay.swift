import SalvorModel
import SalvorStorage
import SalvorWire

/// Brings a database that was opened in line with the ledger beside it: what a restore has brought back of purged rows goes
/// again, before anybody is answered.
package struct PurgeReplay {
  private let connection: any StoreConnection
  private let server: ServerID
  private let ledger: PurgeLedger
  /// What is remembered says that the database came from a backup.
  private let isRestored: Bool
  /// Other processes write into the same database, and have ledgers of their own. This one may lag behind the database, and after a
  /// restore it may have acts that the others did not get, while they have made new ones.
  private let isOneOfSeveral: Bool
  /// What another file of the server's knows of the ledger. Nil: nothing.
  private let witness: Witness?
  private let makePurge: () -> Purge
  private let catalog: Catalog

  package struct Witness {
    /// Of the file.
    var path: String
    /// The last act.
    var last: PurgeEnd

    package init(path: String, last: PurgeEnd) { (self.path, self.last) = (path, last) }
  }

  package init(
    _ connection: any StoreConnection, _ catalog: Catalog, _ server: ServerID, _ ledger: PurgeLedger,
    isRestored: Bool, isOneOfSeveral: Bool = false, witness: Witness? = nil, makePurge: @escaping () -> Purge
  ) {
    self.connection = connection
    self.catalog = catalog
    self.server = server
    self.ledger = ledger
    self.isRestored = isRestored
    self.isOneOfSeveral = isOneOfSeveral
    self.witness = witness
    self.makePurge = makePurge
  }

  /// What the file has and the database lacks is applied to the database; the file is made anew where there is none.
  ///
  /// - Parameter transaction: runs its body in one.
  /// - Returns: what is to be said to the operator.
  package func run(_ transaction: (() throws -> Void) throws -> Void) throws -> [String] {
    let book = try PurgeBook(connection)
    let known = try book.entries()
    let ended = try book.ended()
    let last = ended.count + Int64(known.count)
    guard let found = try ledger.read() else {
      try checkWitness(nil, last)
      guard book.key != nil, !known.isEmpty else { return [] }
      try book.bring(ledger, server)
      return isOneOfSeveral
        ? []
        : [
          "\(ledger.path), the ledger of purged rows, was not there. It was made anew from the database, which knows \(known.count) acts."
        ]
    }
    try check(found, last, known.last?.seal ?? ended.seal)
    try checkWitness(found, last)
    var notices: [String] = []
    if found.isTorn {
      try ledger.cut(to: found.wholeBytes)
      notices.append("\(ledger.path) ended in half a line, of a purge that was not done. The half line was removed.")
    }
    if found.ended.count > last {
      notices.append(
        "The database came from a backup that is older than \(found.ended.count - last) purges that ended, since it is not listed, or was forgotten. What they erased may be back: purge it again."
      )
    }
    let missing = missing(found, known, ended)
    let hasEnded = found.ended.count > ended.count
    guard hasEnded || !missing.isEmpty else { return notices }
    var rows: Int64 = 0
    var others: Int64 = 0
    try transaction {
      let book = try book.keyed(found.key)
      if hasEnded { try book.end(found.ended) }
      (rows, others) = missing.isEmpty ? (0, 0) : try apply(missing, book)
    }
    if missing.isEmpty { return notices }
    notices.append(
      "The database lacks \(counted(missing.count, "act", "acts")) of \(ledger.path): it came from a backup. What was erased for good is gone again: \(counted(rows, "row", "rows"))."
    )
    if others > 0 {
      notices.append(
        "\(counted(others, "row", "rows")) that had come back as well needed an erased row: the reference was emptied, or the row went where it may not be empty."
      )
    }
    return notices
  }

  /// The acts of the file that the database lacks. After acts that another process has made meanwhile only purges count: whoever means
  /// a release says it again.
  private func missing(_ found: PurgeLedger.Content, _ known: [PurgeEntry], _ ended: PurgeEnd) -> ArraySlice<PurgeEntry>
  {
    let last = ended.count + Int64(known.count)
    guard isOneOfSeveral else { return found.entries.dropFirst(Int(max(0, last - found.ended.count))) }
    let seals = Set(known.map(\.seal) + [ended.seal])
    let common = found.entries.lastIndex { seals.contains($0.seal) }
    let rest = found.entries[(common.map { $0 + 1 } ?? 0)...]
    let parted = common.map { found.entries[$0].seal } ?? found.ended.seal
    if parted == known.last?.seal ?? ended.seal { return rest }
    var final: [String: PurgeEntry.Act] = [:]
    for entry in rest { final[entry.hash] = entry.act }
    return rest.filter { $0.act == .purge && final.removeValue(forKey: $0.hash) == .purge }[...]
  }

  /// - Parameters:
  ///   - last: how many acts the database knows of, with those that ended.
  ///   - seal: of the last of them.
  private func check(_ found: PurgeLedger.Content, _ last: Int64, _ seal: String) throws {
    guard found.server == server else {
      throw SalvorError(
        .storage,
        "\(ledger.path) is the ledger of purged rows of another server (\(found.server)); this one is \(server). The server does not start. Put the right one there, or move it away where this database never had one. Where salvor server adopt --new-id did not come to its end, say it again.",
        context: ["file": ledger.path])
    }
    // A purge ends only when its line is whole and the database has it.
    if found.isTorn, isRestored || found.last > last { throw ledger.damaged("its last line is cut off") }
    if isOneOfSeveral {
      guard let key = try PurgeBook(connection).key, key != found.key else { return }
      throw ledger.damaged(
        "its hashes have another key than those of the database, in which rows were purged for the first time after it had been put back. Purge again what was purged before that, then move the file away"
      )
    }
    if found.last < last {
      throw ledger.damaged(
        "it has \(found.last) acts, and the database knows \(last). Where it is lost, remove what is left: the next start makes it anew from the database"
      )
    }
    // Of acts before those that ended nobody can tell.
    let place = Int(last - found.ended.count)
    if place >= 0, (place == 0 ? found.ended.seal : found.entries[place - 1].seal) != seal {
      throw ledger.damaged("it is not the one that the database's purges were written into")
    }
  }

  /// A ledger that was cut at the end of a line, or is gone, beside a database that was put back: neither of them shows it.
  private func checkWitness(_ found: PurgeLedger.Content?, _ last: Int64) throws {
    guard let witness, last < witness.last.count else { return }
    let place = Int(witness.last.count - (found?.ended.count ?? 0))
    let what: String
    switch found {
    case nil: what = "it is not there"
    case let found? where found.last < witness.last.count: what = "it has \(counted(found.last, "act", "acts"))"
    case let found? where place > 0 && found.entries[place - 1].seal != witness.last.seal: what = "it has others"
    default: return
    }
    throw ledger.damaged(
      "\(witness.path) says that the server has written \(counted(witness.last.count, "act", "acts")) into it, and \(what). If the ledger is lost, remove \(witness.path), start the server, and purge again what was purged since the backup"
    )
  }

  private func apply(_ missing: ArraySlice<PurgeEntry>, _ book: PurgeBook) throws -> (rows: Int64, others: Int64) {
    var seal = try book.lastSeal()
    for entry in missing { seal = try book.take(entry, after: seal) }
    try connection.deferReferences()
    var purge = makePurge()
    var others: Int64 = 0
    // What stands under a key that may be used again is from before the purge, too.
    let erased = Set(missing.lazy.filter { $0.act == .purge }.map(\.hash))
    // Only hashes are known: each row that is there is asked. Children first.
    for place in catalog.tables.indices.reversed() {
      for key in try purgedKeys(place, book, erased) { others += try purge.eraseAgain(place, key) }
    }
    for row in try connection.rows("SELECT DISTINCT \"table\", key FROM salvor_conflict") {
      guard let place = catalog.place(of: row[0].string ?? ""),
        let key = try JSONValue(parsing: Array((row[1].string ?? "").utf8)).array?.compactMap(\.rowValue),
        key.count == catalog.tables[place].keyCount,
        case let hash = book.hash(catalog.tables[place], key), try erased.contains(hash) || book.isPurged(hash: hash)
      else { continue }
      try purge.erase(place, key)
    }
    try purge.forgetOnTheWay()
    return (purge.report.rows, others)
  }

  private func purgedKeys(_ place: Int, _ book: PurgeBook, _ erased: Set<String>) throws -> [Key] {
    let table = catalog.tables[place]
    var keys: [Key] = []
    let statement = try connection.stream("SELECT \(table.keyList()) FROM \(table.sql)")
    defer { statement.reset() }
    while try statement.step() {
      let key = statement.values()
      let hash = book.hash(table, key)
      if try erased.contains(hash) || book.isPurged(hash: hash) { keys.append(key) }
    }
    return keys
  }
}

private func counted(_ number: some BinaryInteger, _ one: String, _ many: String) -> String {
  "\(number) \(number == 1 ? one : many)"
}
