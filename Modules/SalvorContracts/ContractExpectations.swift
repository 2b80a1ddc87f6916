import SalvorModel

/// Throws `ContractFailure` unless `body` throws a `SalvorError`, with `code` where one is given. Returns the error.
@discardableResult
public func expectError(
  _ code: ErrorCode? = nil, _ what: @autoclosure () -> String, file: String = #fileID, line: Int = #line,
  _ body: () async throws -> Void
) async throws -> SalvorError {
  do {
    try await body()
  } catch let error as SalvorError {
    if let code, error.code != code {
      throw ContractFailure(
        "\(what()): threw \(error.code.rawValue), must throw \(code.rawValue)", file: file, line: line)
    }
    return error
  } catch {
    throw ContractFailure("\(what()): threw \(error), must throw a SalvorError", file: file, line: line)
  }
  throw ContractFailure("\(what()): must throw \(code?.rawValue ?? "a SalvorError")", file: file, line: line)
}

/// What became of one case.
public struct ContractOutcome: Sendable, Hashable {
  /// `ContractCase.name`.
  public var name: String
  /// `ContractCase.rule`.
  public var rule: String
  /// Nil where the rule is kept.
  public var failure: String?

  /// `failure` is a text for people; nil: the rule is kept.
  public init(name: String, rule: String, failure: String?) {
    self.name = name
    self.rule = rule
    self.failure = failure
  }
}

/// Runs every case on a subject of its own, one after the other. `makeSubject` failing counts as the case failing;
/// `dispose` gets each subject back afterwards.
public func runContract<Subject>(
  _ cases: [ContractCase<Subject>], makeSubject: @Sendable () async throws -> Subject,
  dispose: @Sendable (Subject) async -> Void = { _ in }
) async -> [ContractOutcome] {
  var outcomes: [ContractOutcome] = []
  for rule in cases {
    var outcome = ContractOutcome(name: rule.name, rule: rule.rule, failure: nil)
    do {
      let subject = try await makeSubject()
      do {
        try await rule.run(subject)
      } catch {
        outcome.failure = "\(error)"
      }
      await dispose(subject)
    } catch {
      outcome.failure = "could not be made: \(error)"
    }
    outcomes.append(outcome)
  }
  return outcomes
}

/// The names of the cases that a subject breaks. A suite is proved with it: a deliberately broken double must break
/// exactly the case that was written for it.
public func brokenRules<Subject>(
  _ cases: [ContractCase<Subject>], makeSubject: @Sendable () async throws -> Subject
) async -> [String] {
  await runContract(cases, makeSubject: makeSubject).filter { $0.failure != nil }.map(\.name)
}
