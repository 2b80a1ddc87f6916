/// One step of a history: what a person, a program or the world does. A step holds everything it needs, so that a history
/// stays one when others are left out of it.
public struct Step: Sendable, Hashable {
  /// What is written while a device watches, after so many seconds.
  public struct Turn: Sendable, Hashable {
    /// Seconds of the simulation's time that pass before this turn's writes.
    public var seconds: Int
    /// The device's application.
    public var statements: [String]
    /// Another program in the server's tables.
    public var program: [String]
    /// Before that the server's process ends. It starts again after a while.
    public var restartsServer = false
    /// Before that the device's process ends at one of its next calls; nil: it goes on.
    public var kill: Int?
  }

  /// How an application changes a table of its device.
  public enum Rebuilding: String, Sendable, Hashable, CaseIterable {
    /// A new table takes the rows, and then the old one's name.
    case rebuildsTable = "rebuilds a table"
    /// The column `n` has another name, which no schema says.
    case renamesColumn = "renames a column"
    /// The column `n` is gone.
    case dropsColumn = "drops a column"
    /// A generated column more.
    case addsGenerated = "adds a generated column"
  }

  /// What is done. A device is a place in `History.devices`; a slot is the number of a backup or copy, 0 or 1.
  public enum Action: Sendable, Hashable {
    /// An application's transaction on a device.
    case write(device: Int, statements: [String])
    /// Another program's transaction in the server's tables.
    case program(statements: [String])
    /// A device synchronizes over a network with these faults; its application runs `meanwhile` in one transaction.
    case sync(device: Int, faults: NetworkFaults, meanwhile: [String])
    /// A device synchronizes while a connection of its application has a transaction open: one that reads, or that writes
    /// `statements`. It begins when the device has done `after` jobs, and ends `jobs` later.
    case hold(device: Int, statements: [String]?, after: Int, jobs: Int, commits: Bool)
    /// A device synchronizes some groups alone.
    case syncGroups(device: Int, groups: [String], faults: NetworkFaults)
    /// A device synchronizes whenever either side changes, for as long as the turns take; nil: all groups.
    case watch(device: Int, groups: [String]?, faults: NetworkFaults, turns: [Turn])
    /// Two devices at once.
    case pair(Int, Int, faults: NetworkFaults)
    /// Two processes of one device at once.
    case twoProcesses(device: Int)
    /// The device's process ends before the n-th thing that it asks of its store or of the network.
    case crash(device: Int, call: Int)
    /// The process ends between two syncs.
    case restartDevice(Int)
    /// The server's process ends and starts anew on the same files.
    case restartServer
    /// The server stops, its database is copied to the slot, and it starts.
    case backup(slot: Int)
    /// The server starts on the copy of the slot; without `sideFile` the side file is removed. `inPlace`: another program writes the
    /// copy into the file of the server that runs. No copy: nothing.
    case restore(slot: Int, sideFile: Bool, inPlace: Bool)
    /// The server starts on a new and empty database.
    case replaceServer
    /// The server forgets everything that it may forget, as if its retention were 0.
    case trim
    /// A device's files are copied to the slot.
    case copyDevice(Int, slot: Int)
    /// A device gets the files of the slot back; without `identity` its identity file is removed. No copy: nothing.
    case putBack(Int, slot: Int, identity: Bool)
    /// One device's files become another's, too.
    case clone(from: Int, to: Int, identity: Bool)
    /// The application drops all of Salvor's triggers.
    case dropTriggers(Int)
    /// A person deletes the device's first failed entry, and what goes with it in the device's mode; none: nothing.
    case deleteErrors(Int)
    /// A person deletes everything that recoveries of the device have kept.
    case deleteKept(Int)
    /// A person retries the device's failed and displaced requests.
    case retryErrors(Int)
    /// A person reapplies the first kept entry of the device; none: nothing.
    case reapplyKept(Int)
    /// A person withdraws the device's newest queued request; none: nothing.
    case withdraw(Int)
    /// A person has the device recover; nil: by the strategy of its configuration.
    case recover(Int, strategy: String?)
    /// The operator deletes the device's remote ID on the server.
    case deleteRemote(Int)
    /// The operator demands a reset of the device.
    case demandReset(Int)
    /// The operator resolves the first 100 open conflict versions, each for the same side.
    case resolveConflicts(keepServer: Bool)
    /// The server's schema gets a column more.
    case evolveServer(table: Int)
    /// Another program deletes a row of the server's that rows of another group reference, and the device synchronizes the deleted row's group
    /// alone.
    case uproot(device: Int, place: Int)
    /// The server's schema has the table in another group; nil: `default`.
    case moveTable(table: Int, group: String?)
    /// The server has the next version of its schema.
    case changeSchema(SchemaChange)
    /// The application rebuilds a table, or changes a column of it; `pauses`: with capture paused meanwhile.
    case rebuild(device: Int, table: Int, Rebuilding, pauses: Bool)
    /// The device's configuration names the server's schema of now.
    case evolveDevice(Int)
    /// The device's clock is set forward, or back where `hours` is below 0. Time itself stays.
    case clockJump(device: Int, hours: Int)
    /// The device compares its rows with the server's.
    case verify(Int)
    /// A device synchronizes, and its disk or the server's fails.
    case disk(device: Int, atServer: Bool, plan: MachineDisk.Plan)
    /// The application changes its own tables; `pauses`: as it should.
    case migrate(device: Int, statement: String, pauses: Bool)
    /// Everything that only shows something is asked.
    case look(Int)
    /// The application writes the personalization key `home`, or removes it.
    case setHome(Int, region: String?)
    /// The disk of the device fails while its application writes.
    case writeFault(device: Int, statements: [String], plan: MachineDisk.Plan)
    /// The device chooses rows of a table or group by their region; nil: all of them; `setting:home`: by that key.
    case subscribe(Int, table: String, region: String?)
    /// Nil: every choice is taken back.
    case unsubscribe(Int, table: String, region: String?)
    /// Nobody hears of the device any more.
    case leave(Int)
    /// An operator purges one of the server's rows.
    case purge(place: Int)
    /// Both synchronize, and write one row one after the other: the second knows the first's value, the first hears no more of it.
    case duel(Int, Int, place: Int)
    /// The operator accepts the offers that wait for him, of a table or all.
    case acceptOffers(table: String?)
    /// Healing is paused, or goes on.
    case paceHealing(pauses: Bool)
    /// The configuration of a device says anew what it gives back: `client.recovery.heal`.
    case setHeal(Int, mode: String)
    /// The schema says anew what may be given back of a table; nil: all.
    case setTableHeal(table: Int, mode: String?)
    /// Nothing happens for so many hours.
    case wait(hours: Int)
  }

  /// Its place in the whole history: what it draws while it runs follows from this.
  public var id: Int
  /// What is done in this step.
  public var action: Action
}

extension Step {
  /// The device that acts in it, where it is one alone.
  var device: Int? {
    switch action {
    case .write(let device, _), .writeFault(let device, _, _), .setHome(let device, _), .uproot(let device, _),
      .sync(let device, _, _), .syncGroups(let device, _, _), .watch(let device, _, _, _),
      .twoProcesses(let device), .crash(let device, _), .hold(let device, _, _, _, _),
      .restartDevice(let device), .verify(let device), .look(let device), .leave(let device):
      device
    default: nil
    }
  }

  /// After it a change that waits still stands on the row that it was made on.
  var leavesOrigins: Bool {
    switch action {
    case .write, .program, .sync, .hold, .syncGroups, .watch, .pair, .twoProcesses, .restartDevice, .restartServer,
      .backup,
      .clockJump,
      .wait,
      .look, .subscribe, .unsubscribe, .leave, .setHome, .uproot:
      true
    default: false
    }
  }
}

extension Step: CustomStringConvertible {
  /// The action's name, e.g. `write`.
  public var name: String {
    let text = "\(action)"
    return String(text.prefix { $0 != "(" })
  }

  /// For a person who does it by hand.
  public var description: String {
    func device(_ number: Int) -> String { "d\(number)" }
    func shown(_ groups: [String]) -> String { groups.map { " --group " + $0 }.joined() }
    func shown(_ faults: NetworkFaults) -> String { faults.isSound ? "" : "   # over a faulty network" }
    switch action {
    case .write(let number, let statements):
      return
        "sqlite3 \(device(number)).db \"PRAGMA foreign_keys=ON; BEGIN; \(statements.joined(separator: "; ")); COMMIT\""
    case .program(let statements):
      return "sqlite3 server.db \"PRAGMA foreign_keys=ON; BEGIN; \(statements.joined(separator: "; ")); COMMIT\""
    case .sync(let number, let faults, let meanwhile):
      let during = meanwhile.isEmpty ? "" : "   # and meanwhile: \(meanwhile.joined(separator: "; "))"
      return "salvor sync --config \(device(number)).json5\(shown(faults))\(during)"
    case .hold(let number, let statements, let after, let jobs, let commits):
      let what = statements.map { "BEGIN IMMEDIATE; " + $0.joined(separator: "; ") } ?? "BEGIN; SELECT"
      return
        "salvor sync --config \(device(number)).json5 & sqlite3 \(device(number)).db \"\(what); \(commits ? "COMMIT" : "ROLLBACK")\"   # open from job \(after) on, for \(jobs) jobs"
    case .syncGroups(let number, let groups, let faults):
      return "salvor sync\(shown(groups)) --config \(device(number)).json5\(shown(faults))"
    case .watch(let number, let groups, let faults, let turns):
      let during = turns.map { turn in
        "after \(turn.seconds) s\(turn.restartsServer ? " the server ends and starts" : ""): \((turn.statements + turn.program.map { "on the server: " + $0 }).joined(separator: "; "))"
      }
      return
        "salvor sync --watch\(shown(groups ?? [])) --config \(device(number)).json5\(shown(faults))   # and meanwhile: \(during.joined(separator: ", "))"
    case .pair(let a, let b, let faults):
      return "salvor sync --config \(device(a)).json5 & salvor sync --config \(device(b)).json5; wait\(shown(faults))"
    case .twoProcesses(let number):
      return "salvor sync --config \(device(number)).json5 & salvor sync --config \(device(number)).json5; wait"
    case .crash(let number, let call):
      return "salvor sync --config \(device(number)).json5   # killed at call \(call)"
    case .restartDevice(let number): return "# the application on \(device(number)) ends and starts anew"
    case .restartServer: return "# salvor serve ends and starts anew"
    case .backup(let slot): return "# stop the server; cp server.db backup\(slot).db; start it"
    case .restore(let slot, _, true): return "sqlite3 server.db '.restore backup\(slot).db'   # while the server runs"
    case .restore(let slot, let sideFile, false):
      return "# stop the server; cp backup\(slot).db server.db\(sideFile ? "" : "; rm server.db.salvor-side"); start it"
    case .replaceServer: return "# stop the server; rm server.db*; start it"
    case .trim: return "# the server forgets its tombstones"
    case .copyDevice(let number, let slot): return "cp \(device(number)).db \(device(number))-\(slot).copy"
    case .putBack(let number, let slot, let identity):
      return
        "cp \(device(number))-\(slot).copy \(device(number)).db\(identity ? "" : "; rm \(device(number)).db.salvor-identity")"
    case .clone(let from, let to, let identity):
      return "cp \(device(from)).db \(device(to)).db\(identity ? "   # with its identity file" : "")"
    case .dropTriggers(let number): return "# the application on \(device(number)) drops all of Salvor's triggers"
    case .deleteErrors(let number): return "salvor errors delete --all --config \(device(number)).json5"
    case .deleteKept(let number): return "salvor errors delete --kept --config \(device(number)).json5"
    case .retryErrors(let number): return "salvor errors retry --all --config \(device(number)).json5"
    case .reapplyKept(let number): return "salvor errors reapply --config \(device(number)).json5   # the first one"
    case .withdraw(let number): return "salvor queue withdraw --config \(device(number)).json5   # the newest one"
    case .recover(let number, let strategy):
      return "salvor recover\(strategy.map { " --strategy \($0)" } ?? "") --config \(device(number)).json5"
    case .deleteRemote(let number): return "salvor remotes delete \(device(number))"
    case .demandReset(let number): return "salvor remotes reset \(device(number))"
    case .resolveConflicts(let keepServer):
      return "salvor conflicts resolve --keep \(keepServer ? "server" : "device")   # each one"
    case .evolveServer(let table): return "# the server's schema gets the column extra in table \(table)"
    case .uproot(let number, let place):
      return
        "# a program deletes a row of the server's that rows of another group reference, the number \(place); \(device(number)) synchronizes the group of that row alone"
    case .moveTable(let table, let group):
      return "# the server's schema has the table number \(table) in the group \(group ?? "default")"
    case .setHome(let number, let region):
      let sql = region.map { "INSERT OR REPLACE INTO salvor_setting VALUES ('home', '\($0)')" }
      return "sqlite3 \(device(number)).db \"\(sql ?? "DELETE FROM salvor_setting WHERE name = 'home'")\""
    case .writeFault(let number, let statements, let plan):
      return
        "sqlite3 \(device(number)).db \"PRAGMA foreign_keys=ON; BEGIN; \(statements.joined(separator: "; ")); COMMIT\"   # \(plan.fault.rawValue) at call \(plan.call), \(plan.times) times"
    case .changeSchema(let change): return "# the server's next schema: \(change)"
    case .rebuild(let number, let table, let kind, let pauses):
      return
        "# \(device(number)): the application \(kind.rawValue), of table \(table)\(pauses ? ", between salvor capture pause and resume" : "")"
    case .evolveDevice(let number): return "# \(device(number)) gets the server's schema"
    case .clockJump(let number, let hours): return "# the clock of \(device(number)) jumps by \(hours) h"
    case .verify(let number): return "salvor verify --config \(device(number)).json5"
    case .disk(let number, let atServer, let plan):
      let times = plan.times == 1 ? "" : ", \(plan.times) times"
      return
        "salvor sync --config \(device(number)).json5   # \(plan.fault.rawValue) \(atServer ? "of the server" : "") at call \(plan.call)\(times)"
    case .migrate(let number, let statement, let pauses):
      let sql = "sqlite3 \(device(number)).db \"\(statement)\""
      return pauses ? "salvor capture pause; \(sql); salvor capture resume   # \(device(number))" : sql
    case .look(let number): return "salvor status --config \(device(number)).json5   # and queue, errors, backups"
    case .subscribe(let number, let table, let region):
      return "salvor subscribe \(table)\(region.map { " region=\($0)" } ?? "") --config \(device(number)).json5"
    case .unsubscribe(let number, let table, let region):
      return "salvor unsubscribe \(table) \(region.map { "region=\($0)" } ?? "--all") --config \(device(number)).json5"
    case .leave(let number): return "# \(device(number)) is never seen again"
    case .purge(let place):
      return
        "salvor server purge TABLE KEY   # the row number \(place) of the server's, counting on from the last to the first"
    case .duel(let a, let b, let place):
      return
        "# \(device(a)) changes the row number \(place) and synchronizes; \(device(b)) synchronizes, changes it, synchronizes"
    case .acceptOffers(let table): return "salvor server restores accept 1\(table.map { " --table \($0)" } ?? "")"
    case .paceHealing(let pauses): return "salvor server restores \(pauses ? "pause" : "resume")"
    case .setHeal(let number, let mode):
      return "# \(device(number)).json5: client.recovery.heal: \"\(mode)\""
    case .setTableHeal(let table, let mode):
      return "# the server's schema: heal: \"\(mode ?? "all")\" of table \(table)"
    case .wait(let hours): return "# \(hours) h pass"
    }
  }
}
