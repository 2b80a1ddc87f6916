#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import SalvorModel

/// `localizedDescription` is the error's message, `recoverySuggestion` the way on.
extension SalvorError: LocalizedError {
  /// The message: what happened, and what to do now. No value of a user.
  public var errorDescription: String? { message }
  /// What the error's code means wherever it appears, as in the catalogue of errors.
  public var failureReason: String? { code.meaning.replacing("`", with: "") }
  /// Whether to wait, to sign in, to update or to ask somebody.
  public var recoverySuggestion: String? { wayOn }
}
