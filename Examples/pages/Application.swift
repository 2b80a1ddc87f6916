import SalvorClient

// docs/guides/application.md, encryption.md, error-archive.md, schema-evolution.md, subscriptions.md and the guides' first page.

struct Session: Sendable {
  func freshToken() async throws -> String { "" }
  func token() async throws -> String { "" }
}

struct Keychain: Sendable {
  func key(for database: String) throws -> String { database }
}

struct OwnDatabase: Sendable {
  func execute(_ sql: String) throws {}
}

func makeClient(_ session: Session) throws -> SalvorClient {
  let client = try SalvorClient(
    database: "field.db", schema: "schema.json5", server: "https://sync.example.org",
    credentials: { Credentials(token: try await session.freshToken()) })
  return client
}

func makeEncryptedClient(_ session: Session, _ keychain: Keychain) throws -> SalvorClient {
  let client = try SalvorClient(
    database: "field.db", schema: "schema.json5", server: "https://sync.example.org",
    credentials: { Credentials(token: try await session.freshToken()) },
    key: { database in try keychain.key(for: database) })
  return client
}

func stayInStep(_ client: SalvorClient) -> Task<SyncReport?, Never> {
  let watching = Task {
    await client.watch(
      onSync: { report in print(report.uploaded, report.upserts) },
      progress: { step in print(step.share ?? 0) })
  }
  return watching
}

func changeUser(_ client: SalvorClient, _ bert: Session) async throws {
  try await client.switch(
    to: ClientUser(principal: "bert", database: "bert.db", credentials: { Credentials(token: try await bert.token()) }))
}

func showWhatHappens(_ client: SalvorClient) async {
  let watching = Task { await client.watch(groups: ["visits"]) }
  for await event in client.events {
    switch event {
    case .listening(let groups): print("the server tells of changes in", groups)
    case .notListening(let error): print("polled until it does", error?.message ?? "")
    case .changed(let groups, _): print("changed on the server", groups)
    case .captured(let groups): print("changed here", groups)
    case .rowsChanged(let changes): print("read anew", changes.map(\.table))
    case .noted(let notes): print("to know", notes)
    case .synchronized(let report): print(report.uploaded, "went", report.upserts, "came")
    case .failed(let report): print(report.error?.message ?? "")  // tried again, unless it needs a person
    }
  }
  watching.cancel()
}

func lookAtErrors(_ client: SalvorClient) async throws {
  for entry in try await client.errorArchive() where entry.state == .refused {
    print(entry.table, entry.key, entry.reason ?? "", entry.message ?? "")
    let plan = try await client.plan(client.deletion(of: entry.id))  // what would go, with its values
    print(plan.requests.count)
  }
  try await client.retry()
}

func migrate(_ client: SalvorClient, _ database: OwnDatabase) async throws {
  try await client.withCapturePaused {
    try database.execute("UPDATE place SET title = upper(title)")
  }
}

func subscribe(_ client: SalvorClient) async throws {
  try await client.subscribe("site", ["city": .value("Guelph")])
  try await client.unsubscribe("site", ["city": .value("Guelph")])
  for status in try await client.subscriptions { print(status.subscription.text, status.isSynchronized) }
}
