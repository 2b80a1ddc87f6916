import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// How many keys one act names at most.
private let keysMax = 1000

extension ServerEngine {
  /// `POST /admin/v1/purge`: `{"table": …, "keys": [[…], …]}`, with `"release": true` to free the keys again.
  ///
  /// Neither the log nor the audit says which keys: they may be a person's.
  func purge(_ request: TransportRequest, _ who: Administrator) async throws -> TransportResponse {
    guard request.method == "POST" else { throw notFound(request) }
    try who.require(.administrator)
    let message = try await line(request, of: ["table", "keys", "words", "release"])
    let name = try message.string("table")
    guard let releases = message["release"].map(\.bool) ?? false else {
      throw SalvorError(.malformed, "\"release\" is true or false. Nothing was erased, and nothing freed.")
    }
    if message["words"] != nil, message["keys"] != nil {
      throw SalvorError(.malformed, "The body has both \"words\" and \"keys\". Nothing was erased: send one of them.")
    }
    // As on the command line, or as in the protocol.
    let words = try (message["words"]?.array ?? []).map { word throws(SalvorError) in
      guard let text = word.string else { throw SalvorError(.malformed, "\"words\" are texts.") }
      return text
    }
    let keys =
      words.isEmpty
      ? try configuration.schema.purgeKeys(try message.array("keys"), of: name)
      : try configuration.schema.purgeKeys(ofWords: words, of: name)
    return try await act(releases ? "purge.release" : "purge", name, who, request, message) {
      releases
        ? json(["table": .string(name), "released": .integer(try await releasePurged(keys, of: name))])
        : json([
          "table": .string(name), "purged": try await purge(keys, of: name).json,
          "backups": await RecordedBackup.mayHold(configuration.store),
        ])
    }
  }

  /// Erases rows for good (`PurgingServerStore.purge`).
  public func purge(_ keys: [Key], of table: String) async throws -> PurgeReport {
    let store = try purgingStore()
    // Before the purge and after it: a snapshot that is being made meanwhile could hold a purged row.
    try await shelf?.discardAll()
    let report = try await store.purge(keys, of: table)
    try await shelf?.discardAll()
    configuration.log("An administrator erased \(report.rows) rows of \(table) for good.")
    return report
  }

  /// Frees the keys of rows that were erased (`PurgingServerStore.releasePurged`). Returns how many were.
  public func releasePurged(_ keys: [Key], of table: String) async throws -> Int64 {
    let count = try await purgingStore().releasePurged(keys, of: table)
    configuration.log("An administrator freed \(count) purged keys of \(table).")
    return count
  }

  private func purgingStore() throws -> any PurgingServerStore {
    guard let store = configuration.store as? any PurgingServerStore else {
      throw SalvorError(.notFound, "This server's storage module cannot purge. Use the storage \"sqlite\".")
    }
    return store
  }
}

extension RecordedBackup {
  /// The listed copies of the database, oldest first: made before a purge, they may hold what was purged.
  public static func mayHold(_ store: any ServerStore) async -> JSONValue {
    let listed = (try? await (store as? any BackupListingServerStore)?.recordedBackups()) ?? []
    return .array(
      listed.reversed().filter { !$0.isForgotten }.map { ["id": .string($0.id), "path": .string($0.path)] })
  }
}

extension Schema {
  /// The keys that a row of words names, as many words each as the table's key has columns.
  public func purgeKeys(ofWords words: [String], of name: String) throws(SalvorError) -> [Key] {
    let table = try purgeable(name)
    let count = max(1, table.primaryKey.count)
    guard words.count % count == 0, words.count / count <= keysMax else { return [try table.key(ofTexts: words)] }
    var keys: [Key] = []
    for first in stride(from: 0, to: words.count, by: count) {
      keys.append(try table.key(ofTexts: Array(words[first..<first + count])))
    }
    return keys
  }

  /// The keys of a message: an array of values each, or one value where the key has one column.
  fileprivate func purgeKeys(_ list: [JSONValue], of name: String) throws(SalvorError) -> [Key] {
    let table = try purgeable(name)
    guard !list.isEmpty, list.count <= keysMax else {
      throw SalvorError(.malformed, "\"keys\" has 1 to \(keysMax) keys; there are \(list.count).")
    }
    let columns = table.primaryKey.compactMap { name in table.columns.first { $0.name == name } }
    var keys: [Key] = []
    for (place, entry) in list.enumerated() {
      let values = entry.array ?? [entry]
      let key = values.compactMap(\.rowValue)
      guard key.count == values.count, key.count == columns.count,
        zip(columns, key).allSatisfy({ $0.type.stores($1) && !$1.isNull })
      else {
        let wanted = columns.map { "\($0.name) (\($0.type.rawValue))" }.joined(separator: ", ")
        throw SalvorError(
          .malformed, "Key \(place + 1) is no key of \(name), which is \(wanted).", context: ["table": name])
      }
      keys.append(key)
    }
    return keys
  }

  private func purgeable(_ name: String) throws(SalvorError) -> Table {
    if let table = table(name), table.maintained != .client { return table }
    throw SalvorError(
      .notFound,
      "The schema has no synchronized table \(name). It has \(synchronized.map(\.name).joined(separator: ", ")).",
      context: ["table": name])
  }
}
