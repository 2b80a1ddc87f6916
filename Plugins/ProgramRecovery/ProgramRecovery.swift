import ModuleProgram
import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage
import SalvorWire

/// A strategy in any language (README.md). What it is declared to guarantee is looked for in each of its plans: one that breaks it
/// is not carried out.
public struct ProgramRecovery: RecoveryStrategy {
  /// `program`.
  public let name = "program"
  /// The strategy that follows where the program cannot, or its steps fail twice; nil: `manual`.
  public let fallBack: String?
  /// What was declared. A plan of the program that breaks it is not carried out.
  public let guarantees: RecoveryGuarantees
  private let program: ModuleProgram

  /// Starts no program yet: the first incident does.
  ///
  /// - Parameters:
  ///   - guarantees: what each plan of the program must keep to.
  ///   - fallBack: the name of the strategy that follows where the program cannot; nil: `manual`.
  public init(_ program: ModuleProgram, guarantees: RecoveryGuarantees, fallBack: String? = nil) {
    self.program = program
    self.guarantees = guarantees
    self.fallBack = fallBack
  }

  /// The program's answer. The program is not asked where `guarantees` exclude the incident: the server has
  /// `clientRecoveryEnabled` off, or the schema has changed destructively. It cannot where the program fails, answers
  /// too late or breaks `guarantees`.
  public func plan(for incident: Incident) -> RecoveryDecision {
    if guarantees.needsServersConsent, !incident.facts.clientRecoveryEnabled {
      return .cannot("the server's operator has switched client recovery off (clientRecoveryEnabled).")
    }
    if !guarantees.survivesSchemaChange, !incident.facts.differences.isEmpty {
      return .cannot("the schema has changed destructively: \(incident.facts.differences.joined(separator: "; ")).")
    }
    do {
      let answer = try program.ask(Self.question(incident))
      if let why = answer["cannot"]?.string { return .cannot(why.isEmpty ? "the program does not say why." : why) }
      let steps = try answer.array("steps").map { try RecoveryStep($0) }
      if let mistake = mistake(in: steps, incident) {
        return .cannot("the program's plan is not carried out: \(mistake).")
      }
      return .steps(steps)
    } catch {
      return .cannot((error as? SalvorError)?.message ?? "The program failed.")
    }
  }

  private static func question(_ incident: Incident) -> JSONValue {
    let (facts, status) = (incident.facts, incident.status)
    return [
      "version": 1, "question": "plan", "reason": .string(incident.reason.rawValue),
      "message": .string(incident.message),
      "principal": .string(facts.principal), "shared": facts.shared.map { .integer($0.number) } ?? .null,
      "head": .integer(facts.head.number), "rows": .integer(facts.rows),
      "clientRecoveryEnabled": .bool(facts.clientRecoveryEnabled),
      "selfServiceRemoteDeletion": .bool(facts.selfServiceRemoteDeletion),
      "differences": .array(facts.differences.map(JSONValue.string)),
      "queued": .integer(status.queued), "inError": .integer(status.inError),
      "displaced": .integer(status.displaced), "kept": .integer(status.kept),
    ]
  }

  // MARK: What a plan may be

  /// Nil: it is one that can be carried out, and that keeps what is declared.
  private func mistake(in steps: [RecoveryStep], _ incident: Incident) -> String? {
    let names = steps.map(\.name)
    guard Set(names).count == names.count else { return "a step is in it twice" }
    guard let last = steps.last, ["apply", "wait"].contains(last.name) else {
      return "it does not end with apply or wait"
    }
    if names.contains("apply"), names.contains("wait") { return "it applies and waits" }
    if let upload = names.firstIndex(of: "upload"), names.firstIndex(of: "fetch") ?? -1 < upload {
      return "what waits is uploaded before something is fetched"
    }
    guard case .apply(let requests, let rebuild) = last else {
      // What waits for a person touches nothing.
      return names.allSatisfy { ["copy", "wait"].contains($0) } ? nil : "a plan that waits makes a copy at most"
    }
    guard names.dropLast().last == "fetch" else { return "it applies what was not fetched just before" }
    if rebuild != .nothing {
      if steps.first != .copy { return "tables are made anew without a copy first" }
      if requests != .discard { return "tables are made anew, and the queue is kept" }
      if !steps.contains(.fetch(.everything)) { return "tables are made anew, and not everything is fetched" }
    }
    if incident.reason == .localCorruption, rebuild == .nothing || names.contains("upload") {
      return "it needs what a damaged file held"
    }
    return brokenPromise(requests, rebuild, uploads: names.contains("upload"))
  }

  private func brokenPromise(
    _ requests: RecoveryOrder.Requests, _ rebuild: RecoveryOrder.Rebuild, uploads: Bool
  ) -> String? {
    let declared = "unsynced changes are declared \(guarantees.unsyncedChanges.rawValue)"
    switch guarantees.unsyncedChanges {
    case .kept where requests != .keep && !uploads: return "\(declared), and it discards them"
    case .uploaded where !uploads: return "\(declared), and it does not upload them"
    case .archived where requests != .discard || uploads: return "\(declared), and it does something else with them"
    case .untouched: return "\(declared), and it applies the server's state"
    default: break
    }
    guard rebuild == .everything else { return nil }
    for (what, fate) in [("client-only tables", guarantees.clientOnlyTables), ("settings", guarantees.settings)]
    where fate == .kept || fate == .untouched {
      return "\(what) are declared \(fate.rawValue), and everything is made anew"
    }
    return nil
  }
}

// MARK: - The module

extension ProgramRecovery {
  private static let timeout: Int64 = 30

  /// The module `program` of the kind recovery strategy. Its options name the program, what the program guarantees and
  /// the strategy that follows. The default timeout of an answer is 30 seconds.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .recoveryStrategy, name: "program", summary: "A program of the operator's plans, by lines of JSON.",
      options: ModuleProgram.options(timeout: timeout) + [
        ModuleOption(
          "unsyncedChanges", type: "kept | uploaded | archived | untouched", default: "\"untouched\"",
          "what its plans must do with them"),
        ModuleOption(
          "clientOnlyTables", type: "kept | archived | lost | untouched", default: "\"kept\"", "the same of these"),
        ModuleOption(
          "settings", type: "kept | archived | lost | untouched", default: "\"kept\"",
          "the same of subscriptions and settings"),
        ModuleOption(
          "needsServersConsent", type: "boolean", default: "true", "it is not asked where clientRecoveryEnabled is off"),
        ModuleOption(
          "survivesSchemaChange", type: "boolean", default: "false",
          "it is asked where the schemas differ destructively"),
        ModuleOption(
          "fallBack", type: "string", default: "null", "the strategy that follows where it cannot; null: manual"),
      ],
      guarantees: ["what the options declare: a plan that breaks it is not carried out"]),
    product: (any RecoveryStrategy).self
  ) { reader, context in
    let program = ModuleProgram.read(&reader, context, timeout: timeout)
    let guarantees = RecoveryGuarantees(
      unsyncedChanges: reader.choice("unsyncedChanges", default: .untouched),
      clientOnlyTables: reader.choice("clientOnlyTables", default: .kept),
      settings: reader.choice("settings", default: .kept),
      needsServersConsent: reader.boolean("needsServersConsent", default: true),
      survivesSchemaChange: reader.boolean("survivesSchemaChange", default: false))
    let fallBack: String?
    if let modules = context.modules {
      fallBack = reader.choice(
        "fallBack", among: modules.names(of: .recoveryStrategy).filter { $0 != "program" }, default: nil)
    } else {
      fallBack = reader.optionalString("fallBack")
    }
    guard let program else { return nil }
    return { ProgramRecovery(program(), guarantees: guarantees, fallBack: fallBack) }
  }
}
