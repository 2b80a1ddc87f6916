import ModuleProgram
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// A conflict policy in any language (README.md). An answer that is not among those declared refuses the request.
public struct ProgramPolicy: ConflictPolicy {
  /// What a program may answer.
  public enum Answer: String, Sendable, CaseIterable { case client, server, both, merged }

  private let program: ModuleProgram
  private let answers: Set<Answer>

  /// Starts no program yet: the first conflict does.
  ///
  /// - Parameter answers: what the program may answer; another answer throws `failed`, which refuses the request.
  public init(_ program: ModuleProgram, answers: Set<Answer> = Set(Answer.allCases)) {
    self.program = program
    self.answers = answers
  }

  /// Asks the program and waits for its answer. Errors: `failed` where the answer is not understood or not allowed, and
  /// whatever `ModuleProgram.ask` throws.
  public func settle(_ conflict: Conflict) throws -> ConflictSettlement {
    let answer = try program.ask(Self.question(conflict))
    let text = try answer.string("settle")
    guard let kind = Answer(rawValue: text) else {
      throw SalvorError(
        .failed, "answers \"settle\" with none of \(Answer.allCases.map(\.rawValue).joined(separator: ", "))")
    }
    guard answers.contains(kind) else {
      throw SalvorError(.failed, "answers \(text), which its option answers does not allow")
    }
    switch kind {
    case .client: return .client
    case .server: return .server
    case .both: return .both
    case .merged:
      guard let values = answer["values"]?.members else {
        throw SalvorError(.failed, "answers merged without an object of values")
      }
      return .merged(
        try values.map { member in
          guard let value = member.value.rowValue else {
            throw SalvorError(.failed, "merges a value into \(member.key) that no row can have")
          }
          return NamedValue(member.key, value)
        })
    }
  }

  private static func question(_ conflict: Conflict) -> JSONValue {
    [
      "version": 1, "question": "settle", "table": .string(conflict.table.name),
      "key": .array(conflict.key.map { JSONValue($0) }), "operation": .string(conflict.operation.rawValue),
      "columns": .array(
        conflict.columns.map {
          ["name": .string($0.name), "old": $0.old.map { JSONValue($0) } ?? .null, "new": JSONValue($0.new)]
        }),
      "server": .object(conflict.server.map { JSONValue.Member($0.name, JSONValue($0.value)) }),
      "request": .string("\(conflict.request)"), "remote": .string(conflict.remote.text),
      "principal": .string(conflict.principal), "time": .integer(conflict.time), "made": .integer(conflict.made),
    ]
  }

  private static let timeout: Int64 = 5

  /// The module `program` of the kind conflict policy. Its options name the program and what the program may answer.
  /// The default timeout of an answer is 5 seconds.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .conflictPolicy, name: "program", summary: "A program of the operator's settles, by lines of JSON.",
      options: ModuleProgram.options(timeout: timeout) + [
        ModuleOption(
          "answers", type: "list of client, server, both, merged", default: #"["client", "server", "both", "merged"]"#,
          "what it may answer; another answer refuses the request")
      ],
      guarantees: ["an answer that is not declared, or none in time, refuses the request as conflict-policy"]),
    product: (any ConflictPolicy).self
  ) { reader, context in
    let program = ModuleProgram.read(&reader, context, timeout: timeout)
    var answers = Set(Answer.allCases)
    let names = reader.strings("answers", default: answers.map(\.rawValue))
    if let unknown = names.first(where: { Answer(rawValue: $0) == nil }) {
      reader.report(
        "answers", "has \"\(unknown)\"; allowed: \(Answer.allCases.map(\.rawValue).joined(separator: ", "))")
    }
    answers = Set(names.compactMap(Answer.init))
    guard let program else { return nil }
    return { [answers] in ProgramPolicy(program(), answers: answers) }
  }
}
