import SalvorContracts
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import StandardModules
import Testing

@Suite("Conflict policies (semantics 7)")
struct ConflictPolicyTests {
  private func policy(_ name: String) throws -> any ConflictPolicy {
    let factory = try ModuleRegistry(StandardModules.all).factory(.conflictPolicy, name)
    var reader = OptionReader(ConfigurationValue(.object([])), file: "", path: "")
    let make = factory.prepare(&reader, ModuleContext(), as: (any ConflictPolicy).self)
    return try #require(try make?())
  }

  @Test("the built-in ones settle every conflict alike, so no store asks them")
  func uniform() throws {
    #expect(try policy("client-wins").uniform == .client)
    #expect(try policy("server-wins").uniform == .server)
    #expect(try policy("keep-versions").uniform == .both)
    #expect(
      StandardModules.all.filter { $0.descriptor.kind == .conflictPolicy }.map(\.descriptor.name).sorted()
        == ["client-wins", "keep-versions", "program", "server-wins"])
  }

  @Test("ConflictPolicyContract", arguments: ConflictPolicyContract.cases)
  func keepsTheContract(_ rule: ConflictPolicyContract.Case) async throws {
    for name in ["client-wins", "server-wins", "keep-versions"] {
      try await rule.run(ConflictPolicySubject(try policy(name)))
    }
  }

  @Test("a policy without a fault keeps the contract", arguments: ConflictPolicyContract.cases)
  func soundDouble(_ rule: ConflictPolicyContract.Case) async throws {
    try await rule.run(ConflictPolicySubject(BrokenConflictPolicy(nil)))
  }

  @Test(
    "the suite catches every broken policy by the rule that it breaks",
    arguments: [
      (.throwsOnNull, "a conflict of an update is settled, whatever its columns and values"),
      (.throwsOnDeletes, "a conflict of a delete is settled"),
      (.throwsOnInserts, "a conflict of an insert of a held key is settled"),
      (.mergesOtherColumns, "what is merged can stand in the row"),
      (.mergesTheKey, "what is merged can stand in the row"),
      (.mergesOtherTypes, "what is merged can stand in the row"),
      (.mergesNullIntoAll, "what is merged can stand in the row"),
      (.mergesTwice, "what is merged can stand in the row"),
      (.changesItsMind, "the same question has the same answer"),
      (.repeatsItself, "the same question has the same answer"),
      (.saysUniformAndIsNot, "one that settles all alike settles each so"),
    ] as [(BrokenConflictPolicy.Fault, String)])
  func broken(_ fault: BrokenConflictPolicy.Fault, rule: String) async {
    let broken = await brokenRules(ConflictPolicyContract.cases) { ConflictPolicySubject(BrokenConflictPolicy(fault)) }
    #expect(broken.contains(rule), "\(fault) breaks \(broken)")
  }

  @Test("every fault of the double has its rule")
  func faults() {
    #expect(BrokenConflictPolicy.Fault.allCases.count == 11)
    let names = ConflictPolicyContract.cases.map(\.name)
    #expect(Set(names).count == names.count)
  }

  @Test("what an error of a policy says of the rows is not repeated; what a named error says is")
  func messages() {
    struct Private: Error { let value = "secret" }
    struct Throws: ConflictPolicy {
      let error: any Error
      func settle(_ conflict: Conflict) throws -> ConflictSettlement { throw error }
    }
    let table = ConflictPolicyContract.sampleTable
    let conflict = Conflict(
      table: table, key: ["a"], operation: .delete, columns: [], server: [],
      request: RequestID(stamp: RequestStamp(from: SystemRandom()), counter: 1), remote: RemoteID(from: SystemRandom()),
      principal: "anna", time: 1, made: 1)
    func message(_ error: any Error) -> String {
      guard case .failed(let text) = Throws(error: error).answer(in: table, { conflict }) else { return "" }
      return text
    }
    #expect(message(Private()).contains("Private"))
    #expect(!message(Private()).contains("secret"))
    #expect(message(SalvorError(.usage, "The column count is needed.")).contains("The column count is needed."))
  }
}
