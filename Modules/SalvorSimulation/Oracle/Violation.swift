/// Something that must never be (semantics 11), found by a simulation.
public struct Violation: Error, Sendable, Hashable, CustomStringConvertible {
  /// The rule that was broken.
  public enum Rule: String, Sendable, Hashable, CaseIterable {
    /// 1: a request is applied twice.
    case appliedTwice = "never-1-applied-twice"
    /// 2: an acknowledged change disappears.
    case disappeared = "never-2-disappeared"
    /// 3: a captured change is neither in the queue, the archive nor acknowledged.
    case unaccounted = "never-3-unaccounted"
    /// 4: after a quiet sync a row in scope differs between the sides.
    case differs = "never-4-differs"
    /// 5: a check of the database fails.
    case damaged = "never-5-damaged"
    /// 6: something half-applied is seen.
    case halfApplied = "never-6-half-applied"
    /// 7: an error has no name, no row or no way on.
    case nameless = "never-7-nameless"
    /// What has to be refused is on the server: a validator's, or a conflict under a policy that does not let it pass.
    case notRefused = "not-refused"
    /// An error that nothing in the history is a reason for.
    case unexpected = "unexpected-error"
    /// A device does not come to rest, or its way out does not lead out.
    case stuck = "stuck"
    /// Something ran on and on, or waited for what never comes.
    case standstill
    /// What the server lost with a restore is not there again, and nothing took its place (semantics 10).
    case notHealed = "not-healed"
    /// What was erased for good is there again (semantics 10).
    case purgedReturned = "purged-returned"
    /// The rows are not those of the specification, which did the same.
    case unspecified = "differs-from-specification"
    /// A report does not say what happened.
    case report
  }

  /// The rule that was broken: `shrink` looks for the same one.
  public var rule: Rule
  /// What was found, with the names of devices and rows, and with notes: a simulation has no values of real users.
  public var message: String
  /// The step after which it was found; nil: at the end.
  public var step: Int?

  /// The rule, the message and the step, in one line.
  public var description: String {
    "\(rule.rawValue): \(message)\(step.map { " (after step \($0))" } ?? " (at the end)")"
  }
}
