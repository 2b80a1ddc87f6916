import SalvorClientEngine
import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorWire

extension Command {
  static let explain = Command(
    "explain", "why a row is here, or not: on this device, or on the server",
    discussion: """
      KEY is the row's key, a word for each of its columns, as salvor queue shows it: a blob is x'00ff', an infinite number inf or
      -inf, a character that no command line takes \\u{0} (a backslash is \\u{5C} where the key itself has \\u{). A KEY that begins with -
      comes after --. On a device it says what came from the server and with which
      commit, what this device did to the row and what became of that, and, of a row that is not here, whether it was
      deleted, left the scope, is not subscribed to, or never came. It needs no server.

      With --remote ID it asks the server's side: the server's database of the configuration, or with --url a server elsewhere
      (SALVOR_ADMIN_TOKEN, role viewer). It says whether that device's principal may see the row and its subscriptions cover
      it, whether the device's last begin was before the row's last change, who changed it last, and its conflicts. --server
      asks so without a remote. What a device subscribes to, only a running server that it has begun with knows: use --url.

        salvor explain site s1
        salvor explain infraction i1 2 --remote 7c9e6679742540de944be07fc1f90ae7
        salvor explain site s1 --remote 7c9e6679742540de944be07fc1f90ae7 --url https://sync.example.org

      No value of the row is shown but its key. Exit code 0 whether it is there or not.
      """,
    arguments: ["TABLE", "KEY…"],
    options: [
      Option("remote", value: "ID", "the server's side: for this remote database"),
      Option("server", "the server's side, for none in particular"),
      .url,
    ]
  ) { invocation in
    let table = invocation.arguments[0]
    let key = Array(invocation.arguments.dropFirst())
    let asksServer = invocation.flags.contains("server") || invocation.options["remote"] != nil
    let told: JSONValue
    if let elsewhere = try invocation.administration() {
      told = try await elsewhere.call("GET", try invocation.explainPath(table, key))
      await elsewhere.close()
    } else if asksServer || invocation.readConfiguration().configuration?.client == nil {
      told = try await invocation.explainOnServer(table, key).json
    } else {
      let client = try await invocation.makeClient()
      told = try await client.explain(table, key: key).json
      await client.close()
    }
    invocation.terminal.json(told)
    describe(told, on: invocation.terminal)
    return 0
  }
}

extension Invocation {
  fileprivate func explainedRemote() throws -> RemoteID? {
    guard let text = options["remote"] else { return nil }
    guard let id = RemoteID(text) else {
      throw SalvorError(.usage, "A remote ID is 32 hexadecimal digits. salvor status on the device says its own.")
    }
    return id
  }

  fileprivate func explainPath(_ table: String, _ key: [String]) throws -> String {
    var path = "/admin/v1/explain/\(percentEncoded(table))"
    for (place, text) in key.enumerated() {
      path += "\(place == 0 ? "?key" : "&key\(place + 1)")=\(percentEncoded(text))"
    }
    return path + (try explainedRemote().map { "&remote=\($0)" } ?? "")
  }

  fileprivate func explainOnServer(_ table: String, _ key: [String]) async throws -> RowExplanation {
    let id = try explainedRemote()
    let configuration = try readConfiguration([.server]).get()
    let store = try await Host.openServerStore(configuration)
    do {
      var remote: ExplainedRemote?
      if let id {
        guard let record = try await store.remote(id) else { throw noRemote(id) }
        let principal = try configuration.server?.authentication.make().principal(named: record.principal)?.listing(
          in: configuration.schema)
        remote = ExplainedRemote(record, principal: principal)
      }
      let told = try await RowExplanation.ofServer(store, configuration.schema, table, key: key, for: remote)
      await store.close()
      return told
    } catch {
      await store.close()
      throw error
    }
  }
}

private func describe(_ told: JSONValue, on terminal: Terminal) {
  let key = (told["key"]?.array ?? []).map { $0.rowValue?.word ?? $0.text }.joined(separator: " ")
  let side = told["side"]?.string == "server" ? "on the server" : "on this device"
  let isThere = told["there"]?.bool == true
  terminal.print(
    "\(visible(told["table"]?.string ?? "")) \(visible(key)) is \(isThere ? terminal.green("there") : terminal.red("not there")), \(side)"
  )
  for reason in told["reasons"]?.array ?? [] {
    terminal.print("  \(visible(reason["text"]?.string ?? ""))  [\(reason["code"]?.string ?? "")]")
  }
}
