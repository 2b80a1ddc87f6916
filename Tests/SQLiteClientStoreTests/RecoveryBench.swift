import SalvorModel
import SalvorStorage
import SalvorWire

@testable import SQLiteClientStore

/// What a server says in a recovery, one line a row or key.
enum Said {
  case row(String, Row, version: Int64? = nil)
  case deleted(String, Key, version: Int64 = 1)
  case left(String, Key, version: Int64 = 1)
  case lost(String, Key)
  case full([String])
}

extension StoreBench {
  static let server = ServerID(unchecked: String(repeating: "5", count: 32))

  func payload(_ said: [Said]) -> [UInt8] {
    var writer = DownloadChunkWriter()
    func key(_ name: String, _ key: Key, _ departure: Departure, _ version: Int64?) {
      writer.table(name, columns: schema.table(name)?.travelling.map(\.name) ?? [])
      writer.beginKey(departure, version: version)
      for value in key { writer.value(value) }
      writer.endRow()
    }
    for line in said {
      switch line {
      case .full(let names): writer.full(names)
      case .row(let name, let row, let version):
        writer.table(name, columns: schema.table(name)?.travelling.map(\.name) ?? [])
        writer.beginRow(version: version)
        for value in row { writer.value(value) }
        writer.endRow()
      case .deleted(let name, let gone, let version): key(name, gone, .deleted, version)
      case .left(let name, let gone, let version): key(name, gone, .left, version)
      case .lost(let name, let gone): key(name, gone, .lost, nil)
      }
    }
    return writer.finish()
  }

  func commit(_ number: Int64) -> Commit {
    Commit(number: number, id: CommitID(unchecked: String(repeating: "c", count: 32)))
  }

  func order(
    _ id: String = "r1", requests: RecoveryOrder.Requests = .keep, rebuild: RecoveryOrder.Rebuild = .nothing,
    absence: RecoveryOrder.Absence = .lost, shared: Int64?, head: Int64 = 50, previous: SequenceID? = nil,
    remoteID: RemoteID? = nil, config: SyncConfig? = nil, removedShareMax: Double? = nil, images: Bool = false
  ) -> RecoveryOrder {
    RecoveryOrder(
      id: id, reason: .serverRestored, strategy: "test", requests: requests, rebuild: rebuild, absence: absence,
      starts: schema.groups.map { GroupStart(name: $0.name, commit: shared.map { commit($0) }) },
      groups: schema.groups.map { GroupState(name: $0.name, cursor: commit(head)) }, previous: previous,
      shared: shared, remoteID: remoteID, server: Self.server, config: config, removedShareMax: removedShareMax,
      keepsBeforeImages: images)
  }

  func recover(_ said: [Said], _ order: RecoveryOrder) async throws -> RecoveryReport {
    try await store.stage(StagedChunk(download: "recovery", bytes: payload(said), position: "p"))
    return try await store.recover(order)
  }

  /// Each line as `fate operation table key reason`.
  func items(_ id: String = "r1") async throws -> [String] {
    try await store.recoveryItems(id, after: 0, limit: 1000).map { item in
      "\(item.fate.rawValue) \(item.operation?.rawValue ?? "-") \(item.table) \(item.key[0]) \(item.reason ?? "-")"
    }
  }

  /// Entries of the queue and the archive, as `state operation key reason`.
  func requests(_ states: Set<RequestState>) async throws -> [String] {
    try await store.requests(in: states, after: nil, limit: 1000).map { entry in
      "\(entry.state.rawValue) \(entry.operation.rawValue) \(entry.key[0])\(entry.reason.map { " " + $0 } ?? "")"
    }
  }
}
