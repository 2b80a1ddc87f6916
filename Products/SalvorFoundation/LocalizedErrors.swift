#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import SalvorModel

/// `localizedDescription` is the error's message, `recoverySuggestion` the way on.
extension SalvorError: LocalizedError {
  public var errorDescription: String? { message }
  public var failureReason: String? { code.meaning.replacing("`", with: "") }
  public var recoverySuggestion: String? { wayOn }
}
