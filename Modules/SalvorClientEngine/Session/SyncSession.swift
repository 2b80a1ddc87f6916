import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// One sync session of the device (semantics 4): begin, upload, the server's answer, staging, applying.
struct SyncSession {
  let configuration: ClientConfiguration
  let progress: @Sendable (SyncProgress) -> Void
  var report: SyncReport
  /// The server delivered a SyncConfig with groups that this session did not ask for yet.
  private(set) var hasNewGroups = false
  /// Requests wait for the next session: what was written while triggers were away, or what the server did not know before it
  /// delivered its SyncConfig.
  var hasNewRequests = false
  /// Rows came that rows which were left out may reference.
  var isToCompare = false
  /// What an upload may have, as the server has said.
  var room: UploadRoom
  /// The upload was taken back, or was a part of what waits, since it may not be more: the next session goes on.
  var isUnfinished = false
  /// `ClientSession.heldDeletes`
  private var heldDeletes: Int64 = 0
  /// The outcome of requests became known: others may have waited for them.
  private(set) var hasUploaded = false
  /// Where nothing waits to be sent, nothing is done.
  private let onlyUploads: Bool
  /// A chunk or a page has reached the other side's staging.
  var hasMadeProgress = false
  /// The tables that the begin wants compared.
  private(set) var compare: [TableDigest] = []
  /// The tables that the server found to differ from what was compared.
  var differing: Set<String> = []
  /// Pieces of this download that staging holds.
  var stagedPieces = 0
  /// What the device subscribes to, and the tables to compare where all groups are synchronized, as they were when the session began.
  private var settings: DeviceSettings?
  private var compared: [TableDigest]?
  /// What the server said of itself when it was met last: it need not be remembered again.
  private(set) var met: JSONValue?
  /// Why this database cannot synchronize before it is recovered; nothing was touched.
  private(set) var requirement: Requirement?
  /// A SyncConfig came.
  private var hasAdopted = false
  /// What the begin took back of the offers that the server held.
  private var withdrawn: [RequestID] = []
  /// Requests went to the archive: their rows are without them now.
  private(set) var isArchiveTouched = false
  /// False: an upload alone.
  private let downloads: Bool
  /// Parts of rows are not asked for: a download was begun anew.
  private let wholeRows: Bool
  /// What the server offers in the place of rows, not fetched yet.
  private var offered: [SnapshotOffer] = []
  /// Nothing was downloaded: what the server held of this device's offers goes up first, or files are of other tables than before.
  var beginsAnew = false
  /// The server made no commit of what was sent: as of which one it has it is known when the download ends.
  private var isUncommitted = false
  /// Snapshots that are here and examined: the next download goes on from them.
  var snapshots: [SnapshotOffer] = []
  /// The application's own was looked at.
  var hasTriedSeed = false
  /// The application's own, until it is taken or passed over.
  var seed: SnapshotOffer?
  /// False: the rows are asked for, one by one.
  var takesSnapshots = true

  struct Requirement {
    var reason: RecoveryReason
    /// What the application is told where no strategy recovers.
    var error: SalvorError
    /// Whatever strategy the configuration names, a person has to decide.
    var isForAPerson = false
  }

  var store: any ClientStore { configuration.store }
  var recovering: (any RecoveringClientStore)? { configuration.store as? any RecoveringClientStore }
  var limits: Limits { configuration.limits }

  init(
    configuration: ClientConfiguration, progress: @escaping @Sendable (SyncProgress) -> Void, report: SyncReport,
    met: JSONValue? = nil, room: UploadRoom = UploadRoom(), downloads: Bool = true, onlyUploads: Bool = false,
    wholeRows: Bool = false
  ) {
    self.wholeRows = wholeRows
    takesSnapshots = !wholeRows
    self.met = met
    (self.onlyUploads, self.downloads, self.room) = (onlyUploads, downloads, room)
    self.configuration = configuration
    self.progress = progress
    self.report = report
  }

  mutating func run(groups: Set<String>?) async throws {
    do {
      try await runSession(groups: groups)
    } catch {
      await closeSnapshots()
      await store.endSession()
      throw error
    }
    await closeSnapshots()
    await store.endSession()
    guard hasAdopted, requirement == nil, let recovering else { return }
    // What the new schema gives cause to compare is compared in a session of its own.
    let compared = Set(compare.map(\.table))
    let comparing = try await recovering.tablesToCompare(groups: Set(try await store.status().state.groups.map(\.name)))
    if comparing.contains(where: { !compared.contains($0.table) }) { hasNewRequests = true }
  }

  private mutating func beginSession(_ groups: Set<String>?) async throws -> ClientSession {
    let comparesAll = groups == nil && downloads && !onlyUploads
    let begun = try await Self.begin(store, groups, room, comparesAll: comparesAll, store as? any Actor)
    (settings, compared) = (begun.settings, begun.compared)
    heldDeletes = begun.session.heldDeletes
    return begun.session
  }

  /// What a session asks of the store before it asks the server, on the store's own thread: one change of threads and back, not one for
  /// each.
  private static func begin(
    _ store: any ClientStore, _ groups: Set<String>?, _ room: UploadRoom, comparesAll: Bool,
    _ isolation: isolated (any Actor)?
  ) async throws -> (session: ClientSession, settings: DeviceSettings, compared: [TableDigest]?) {
    let session = try await store.beginSession(groups: groups, room: room)
    let settings = try await store.deviceSettings()
    guard comparesAll, !session.state.isOlderThanIdentityFile, let recovering = store as? any RecoveringClientStore
    else { return (session, settings, nil) }
    let names = Set(session.state.groups.map(\.name))
    return (session, settings, try await recovering.tablesToCompare(groups: names))
  }

  private mutating func runSession(groups: Set<String>?) async throws {
    if configuration.optimisesQueue { _ = try await store.optimiseQueue() }
    var session = try await beginSession(groups)
    LogContext.current?.set("remote", session.state.remoteID.text)
    report.count(session)
    if !session.blocked.isEmpty || !session.displaced.isEmpty { isArchiveTouched = true }
    // A session that is begun again says the same again; what a recovery before it said stays.
    report.notices += session.notices.filter { !report.notices.contains($0) }
    if onlyUploads, session.upload == nil { return }
    if session.state.isOlderThanIdentityFile {
      requirement = Requirement(
        reason: .clientRewound,
        error: SalvorError(
          .uploadFailedAtServer, "This database is older than its identity file: it was put back from a copy."))
      return
    }
    do {
      try await exchangeWithFiles(&session, groups)
      // Each may happen once: offers go up first, files are fetched, files are passed over.
      for _ in 0..<3 where beginsAnew || !offered.isEmpty {
        if !offered.isEmpty { try await fetchSnapshots(offered) }
        offered = []
        try await beginAgain(&session, groups)
        try await exchangeWithFiles(&session, groups)
      }
      if beginsAnew { hasNewRequests = true }
      if session.state.recoveryRequired != nil { try await store.setRecoveryRequired(nil, message: "") }
    } catch let error as SalvorError where error.code == .inconsistentDownload || error.code == .blobGone {
      // What is staged cannot be made whole any more: the next session downloads from the cursors anew. Blobs that have
      // come stay.
      try await store.discardStaged()
      if !snapshots.isEmpty { await (store as? any SnapshotTakingClientStore)?.closeSnapshots(removing: true) }
      throw error
    } catch let error as SalvorError where error.code == .massDeletion {
      // A recovery for this reason compares everything.
      requirement = Requirement(reason: .operatorRequested, error: error, isForAPerson: true)
      report.error = error
    } catch let error as SalvorError {
      guard let reason = try recoveryReason(error) else { throw error }
      requirement = Requirement(reason: reason, error: error)
      report.error = error
    }
  }

  /// Throws where the server names a reason that this release does not know.
  private func recoveryReason(_ error: SalvorError) throws -> RecoveryReason? {
    switch (error.code, error.reason) {
    case (.uploadFailedAtServer, let reason?):
      guard let known = RecoveryReason(rawValue: reason) else { throw Problem.unknownReason(reason) }
      return known
    case (.schemaIncompatible, nil), (.schemaIncompatible, RecoveryReason.schemaIncompatible.rawValue):
      return .schemaIncompatible
    default: return nil
    }
  }

  // MARK: - The exchange

  private mutating func beginAgain(_ session: inout ClientSession, _ groups: Set<String>?) async throws {
    beginsAnew = false
    await store.endSession()
    session = try await beginSession(groups)
  }

  /// Any of a session's exchanges may be the first that has something to upload, which the server takes in its present schema alone.
  mutating func exchangeAdopting(_ session: inout ClientSession, _ groups: Set<String>?) async throws {
    do {
      try await exchange(session, groups: groups)
    } catch let error as SalvorError where error.needsAdoption {
      try await adoptFirst(session)
      try await beginAgain(&session, groups)
      try await exchange(session, groups: groups)
    }
  }

  private mutating func exchange(_ session: ClientSession, groups: Set<String>?) async throws {
    let subscriptions = try await resolvedSubscriptions()
    var message = begin(session, groups: try await closure(groups, session.state, subscriptions))
    // Named where the device does subscribe, or did: the server brings the difference.
    let isNamed = !subscriptions.isEmpty || message.groups.contains { !$0.subscriptions.isEmpty }
    message.subscriptions = isNamed ? subscriptions : nil
    if !downloads {
      // A recovery uploads to whichever server there is now: it knows what has parted.
      message.groups = []
      message.subscriptions = nil
      message.server = nil
    }
    try await openSeed(message)
    message.snapshot = try await snapshotTaking(message)
    let download = DownloadStart(message)
    let staged = stagedPosition(session.state, download)
    let comparison = staged.flatMap { ComparisonPosition($0) }
    message.position = comparison == nil ? staged : nil
    if let compared {
      compare = compared
    } else {
      compare = try await recovering?.tablesToCompare(groups: Set(message.groups.map(\.name))) ?? []
    }
    message.compare = compare
    message.compared = comparison?.head
    // Where more than what has changed since the cursors comes, it comes by whole rows.
    let isPlain = downloads && !wholeRows && compare.isEmpty && message.compared == nil
    message.takesParts = isPlain && session.takesParts && message.snapshot?.held.isEmpty != false
    // What staging holds a part of goes on.
    if message.position != nil || message.compared != nil || !compare.isEmpty { message.snapshot?.takes = [] }
    if session.state.stagedDownload != nil, message.position == nil, message.compared == nil {
      try await store.discardStaged()
    }
    stagedPieces = message.position == nil && message.compared == nil ? 0 : 1
    if stagedPieces > 0 {
      // What an earlier synchronization staged is not looked at again.
      let groups = Set(message.groups.map(\.name))
      for table in try await configuration.tablesHere() where groups.contains(table.group) {
        report.changed.whole(table.name)
      }
    }
    var first: UploadChunk?
    if session.upload != nil {
      // One in which nothing is left is sent as well: the server may have processed it, and only it knows.
      first =
        try await store.uploadChunk(
          after: 0, bytesTarget: min(limits.singleRoundTripBytesMax, limits.chunkBytesTarget)) ?? .empty
    }
    // A single change may be larger than its chunk was to be.
    var inline = first.flatMap { $0.isLast && $0.bytes.count <= limits.singleRoundTripBytesMax ? $0 : nil }
    var noRoom: SalvorError?
    if let chunk = inline {
      do {
        try await sendBlobs(chunk.blobs)
      } catch let error as SalvorError where error.blobRoom != nil {
        // Before anything is done about it, the server says whether it has this upload already.
        noRoom = error
        inline = nil
      }
    }
    message.upload = first == nil ? .none : inline == nil ? .staged : .inline
    var response: TransportResponse
    do {
      response = try await sendTelling(&message, inline)
    } catch let error as SalvorError where error.code == .tooLarge && inline != nil {
      // The server does not read as much with a begin: in chunks it may.
      (inline, message.upload) = (nil, .staged)
      response = try await sendTelling(&message, nil)
    }
    if let inline { progress(.uploading(changes: Int64(inline.changeCount), share: 1)) }
    if message.upload == .staged {
      var reader = ResponseReader(response, configuration)
      // Without a token the upload had been processed before its acknowledgement was lost: this is the answer already.
      guard let staging = try await stagingSession(&reader, session) else {
        try await receive(&reader, session, download)
        return
      }
      report.bytesReceived += reader.bytesReceived
      guard let answer = try await upload(staging, first: first, noRoom) else { return }
      response = answer
    }
    var reader = ResponseReader(response, configuration)
    try await receive(&reader, session, download)
  }

  /// Again with its history where the server asks for that.
  private mutating func sendTelling(
    _ message: inout BeginMessage, _ inline: UploadChunk?
  ) async throws -> TransportResponse {
    do {
      return try await send(message, inline)
    } catch let error as SalvorError where error.code == .historyNeeded && !error.needsAdoption {
      message.history = try await store.beginHistory()
      return try await send(message, inline)
    }
  }

  /// A declared rule, or what the device knows of and the server does not yet, changes what the device uploads: its
  /// SyncConfig is fetched and adopted alone, and the same upload is sent as it is then.
  private mutating func adoptFirst(_ session: ClientSession) async throws {
    var message = begin(session, groups: [])
    message.current = nil
    message.position = nil
    if !downloads { message.server = nil }
    // The server has just compared the tables, but may have been started anew since.
    message.history = try await store.beginHistory()
    var reader = ResponseReader(try await send(message, nil), configuration)
    defer { report.bytesReceived += reader.bytesReceived }
    while let event = try await reader.next() {
      guard case .control(let line) = event else { continue }
      if let session = line["session"], try await meet(session) { hasNewRequests = true }
      if let config = line["config"] { try await take(try SyncConfig(config), session) }
    }
  }

  private mutating func take(_ config: SyncConfig, _ session: ClientSession) async throws {
    let tables = snapshots.isEmpty ? [] : try await store.history().tables
    report.notices += try await store.adopt(config)
    report.note(try await configuration.resolvedSubscriptions().notices)
    try await passOverSnapshots(madeFor: tables)
    hasAdopted = true
    // What its tables say of healing may be another thing: it is told again.
    met = nil
    if try await store.status().queued > 0 { hasNewRequests = true }
    hasNewGroups =
      hasNewGroups || config.groups.contains { group in !session.state.groups.contains { $0.name == group.name } }
  }

  private func closure(
    _ groups: Set<String>?, _ state: ClientState, _ subscriptions: ResolvedSubscriptions
  ) async throws -> Set<String>? {
    guard let groups else { return nil }
    let schema = Schema(tables: try await store.history().tables)
    for group in groups where !schema.groups.contains(where: { $0.name == group }) {
      throw SalvorError(
        .usage,
        "There is no synchronization group \"\(group)\". The groups are: \(schema.groups.map(\.name).joined(separator: ", "))."
      )
    }
    return schema.groups(synchronizedWith: groups, states: state.groups, subscriptions: subscriptions)
  }

  private func begin(_ session: ClientSession, groups: Set<String>?) -> BeginMessage {
    let state = session.state
    let groups = state.groups.filter { groups?.contains($0.name) ?? true }.map {
      BeginMessage.Group($0)
    }
    var message = BeginMessage(
      remote: state.remoteID, server: state.serverID, previous: state.previous, current: session.upload?.sequence,
      schemaVersion: state.schemaVersion, schemaDigest: state.configDigest, groups: groups, upload: .none,
      position: nil, history: nil)
    message.incarnation = state.incarnation
    message.principal = state.owner
    message.withdrawn = Array(state.withdrawn.prefix(BeginMessage.withdrawnMax))
    return message
  }

  /// What the device subscribes to now.
  private mutating func resolvedSubscriptions() async throws -> ResolvedSubscriptions {
    let wanted = try await configuration.resolvedSubscriptions(settings)
    report.note(wanted.notices)
    return wanted.subscriptions
  }

  /// Where the download that staging holds a part of goes on, if it is the one that begins now.
  private func stagedPosition(_ state: ClientState, _ download: DownloadStart) -> String? {
    guard let staged = state.stagedDownload, let position = state.stagedPosition, !position.isEmpty,
      staged == download.name
    else { return nil }
    return position
  }

  private mutating func send(_ message: BeginMessage, _ inline: UploadChunk?) async throws -> TransportResponse {
    withdrawn = message.withdrawn
    var body = message.json.bytes
    body.append(0x0A)
    if let inline { body += inline.bytes }
    return try await post("/v1/sync", body)
  }

  private mutating func fetchBlobs() async throws {
    try await BlobTransfer(configuration: configuration).fetch(
      counting: &report, received: &hasMadeProgress, progress: progress)
  }

  // MARK: - The answer

  /// Reads the answer: results are settled, the SyncConfig adopted, pages staged, and all of it applied at the end.
  private mutating func receive(
    _ reader: inout ResponseReader, _ session: ClientSession, _ download: DownloadStart,
    from startPosition: String? = nil
  ) async throws {
    var page: [UInt8] = []
    // A page ends where it has reached its target, and its last row stands out.
    let pageBytesMax = 4 * configuration.limits.chunkBytesMax + configuration.limits.rowBytesMax
    // The last page is staged with the position before it: whoever is killed while applying fetches that page again.
    var position = startPosition ?? stagedPosition(session.state, download) ?? ""
    lazy var name = download.name
    var end: DownloadEnd?
    var offer: ComparisonOffer?
    // What came before the cut counts; nil: nobody counted it.
    var rows: Int64? = position.isEmpty || startPosition != nil ? 0 : session.state.stagedRows
    var newRows: Int64 = 0
    var rowsOfAll: Int64?
    // Nil: they are asked for with the first row.
    var primaryKeys: [String: [String]]?
    var pages = PageQueue(store)
    do {
      while let event = try await reader.next() {
        switch event {
        case .payload(let line):
          if primaryKeys == nil { primaryKeys = try await configuration.primaryKeysHere() }
          report.changed.read(line) { primaryKeys?[$0] }
          page += line
          page.append(0x0A)
          guard page.count <= pageBytesMax else {
            throw SalvorError(
              .tooLarge,
              "A page of the download is larger than \(pageBytesMax) bytes. Raise rowBytesMax or chunkBytesMax.",
              context: ["limit": "\(pageBytesMax)"])
          }
        case .control(let line):
          if line["position"] == nil { try await pages.finish() }
          if let told = line["session"] {
            rowsOfAll = told["rows"]?.integer
            if try await meet(told) {
              // The rows that come are those of the offers: they come when what waited is settled here.
              if session.upload == nil, stagedPieces == 0 {
                beginsAnew = true
                return await leave(&pages, reader)
              }
              hasNewRequests = true
            }
            if let rows, rows > 0, let all = rowsOfAll, all > 0 { progress(.fetching(rows: min(rows, all), of: all)) }
          } else if let results = line["results"] {
            try await settle(UploadResults(results), session)
          } else if let config = line["config"] {
            try await take(try SyncConfig(config), session)
            primaryKeys = nil
            if beginsAnew { return await leave(&pages, reader) }
          } else if let next = line["position"]?.string {
            position = next
            let more = try line.optionalCount("rows") ?? 0
            newRows = min(newRows + more, JSONValue.countMax)
            rows = rows.map { min($0 + more, JSONValue.countMax) }
            let chunk = StagedChunk(download: name, bytes: page, position: position, rows: rows)
            page = []
            page.reserveCapacity(chunk.bytes.count)
            try await pages.add(chunk)
            stagedPieces += 1
            hasMadeProgress = true
            if let rows, let all = rowsOfAll, all > 0 {
              progress(.fetching(rows: min(rows, all), of: all))
            } else {
              progress(.receiving(rows: rows ?? newRows, share: share(line)))
            }
          } else if let last = line["end"] {
            if !page.isEmpty {
              try await store.stage(StagedChunk(download: name, bytes: page, position: position, rows: rows))
              stagedPieces += 1
            }
            end = try self.end(last)
          } else if let compare = line["compare"] {
            offer = try ComparisonOffer(compare)
          } else if let offers = line["snapshots"]?.array {
            for offer in offers.prefix(100) { offered.append(try SnapshotOffer(offer)) }
          } else if let problem = line["problem"] {
            throw Problem.error(problem, status: 500, asked: "The sync")
          } else {
            throw SalvorError(
              .malformed,
              "The server's answer has a line that is not of the protocol. Nothing was applied. Update the older of the two, or look at what answers at this address."
            )
          }
        }
      }
      try await pages.finish()
    } catch {
      await leave(&pages, reader)
      throw error
    }
    report.bytesReceived += reader.bytesReceived
    if let offer {
      let before = stagedPosition(session.state, download).flatMap { ComparisonPosition($0) }
      let compared = try await compareTables(
        offer, before, name, groups: Set(session.state.groups.map(\.name)))
      var reader = ResponseReader(try await post("/v1/sync/\(offer.token)/download", []), configuration)
      try await receive(&reader, session, download, from: compared)
      return
    }
    if !offered.isEmpty { return }
    guard let end else {
      throw SalvorError(.unreachable, "The server's answer was cut. The next sync goes on where this one stopped.")
    }
    if stagedPieces == 0, !isUncommitted, isWhereItWas(end, session.state) { return }
    // Pages and blobs are counted by one report.
    try await fetchBlobs()
    // A safe place to stop: what came is staged, and the next synchronization goes on from there.
    try Task.checkCancellation()
    progress(.applying)
    let applied = try await store.apply(end)
    isUncommitted = false
    report.upserts += applied.upserts
    report.deletes += applied.deletes
    report.displaced += Int64(applied.displaced.count)
    report.noteLeftOut(applied, comparing: compare.map(\.table))
    if applied.captured > 0 { hasNewRequests = true }
    if applied.isToCompare { isToCompare = true }
    if !applied.displaced.isEmpty { isArchiveTouched = true }
    for table in compare where table.isFed || differing.contains(table.table) { report.changed.whole(table.table) }
    report.snapshots += applied.snapshots
    noteSeed(applied)
    for snapshot in snapshots { for table in snapshot.tables { report.changed.whole(table.table) } }
  }

  /// Nothing was sent and every cursor is the one that the device has: there is nothing to apply or to write.
  private func isWhereItWas(_ end: DownloadEnd, _ state: ClientState) -> Bool {
    let groups = Dictionary(state.groups.map { ($0.name, $0) }) { first, _ in first }
    return end.groups.allSatisfy { group in
      groups[group.name].map { $0.cursor == group.cursor && $0.scopeDigest == group.scopeDigest } ?? false
    }
  }

  private mutating func end(_ line: JSONValue) throws -> DownloadEnd {
    var groups: [GroupState] = []
    for entry in try line.array("groups") {
      var group = try GroupState(entry)
      group.lastSync = configuration.clock.now()
      groups.append(group)
    }
    let notices = line["notices"]?.array?.compactMap(\.string) ?? []
    report.notices += notices.filter { !report.notices.contains($0) }
    return DownloadEnd(groups: groups)
  }

  /// True: offers that the server held are settled there, and go up again.
  mutating func meet(_ line: JSONValue) async throws -> Bool {
    let waiting = line["heal"]?["waiting"]?.integer ?? 0
    if line["incarnation"] != nil { report.waiting = waiting + heldDeletes }
    guard met != line || line["heal"]?["withdrawn"] != nil else { return false }
    try await store.remember(
      server: line.identifier("server"),
      incarnations: (line["incarnations"]?.array ?? []).map { try Incarnation($0) }, principal: line.string("principal")
    )
    var areDue = false
    if let incarnation = line["incarnation"]?.string.flatMap({ IncarnationID($0) }) {
      var terms = HealTerms(
        incarnation: incarnation, floor: line["heal"]?["floor"]?.integer,
        waiting: waiting, settlings: line["heal"]?["settlings"]?.integer ?? 0,
        deletes: line["heal"]?["deletes"]?.integer)
      if line["heal"]?["withdrawn"]?.bool == true { terms.withdrawn = withdrawn }
      areDue = try await store.remember(
        terms, heal: configuration.recovery.heal, retention: configuration.recovery.lossRetentionMilliseconds)
    }
    met = line["token"] == nil ? line : nil
    return areDue
  }

  private mutating func settle(_ results: UploadResults, _ session: ClientSession) async throws {
    guard let upload = session.upload else {
      throw SalvorError(
        .malformed, "The server gives results of an upload that was not sent. Nothing was applied. Sync again.")
    }
    let settled = try await store.settle(sequence: upload.sequence, results: results)
    hasUploaded = settled.accepted + settled.refused > 0
    isUncommitted = results.commit == nil
    report.uploaded += settled.accepted
    report.count(results, refused: settled.refused)
    report.conflicts += results.conflicts
    report.healed += results.healed
    report.superseded += results.superseded
    report.waiting = settled.waiting
    // How many wait there is asked for with the next begin, whatever this one said.
    if !results.waiting.isEmpty { met = nil }
    report.displaced += Int64(settled.displaced.count)
    if settled.refused > 0 || !settled.displaced.isEmpty { isArchiveTouched = true }
    if room.blobBytes != nil || room.lastCounter != nil { isUnfinished = try await store.status().queued > 0 }
    room.lastCounter = nil
    if settled.asksAgain { isUnfinished = true }
  }

  mutating func post(_ path: String, _ body: [UInt8]) async throws -> TransportResponse {
    try await configuration.request("POST", path, body, counting: &report)
  }
}

extension SalvorError {
  /// The server wants its SyncConfig to be adopted before anything is uploaded.
  fileprivate var needsAdoption: Bool { code == .historyNeeded && context["need"] == BeginMessage.needsAdoption }
}
