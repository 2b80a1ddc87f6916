import SalvorModel

/// How long a case waits for what must come: then it fails instead of hanging. Nothing that is right comes so late, on
/// a busy machine either; a test of a broken double shortens it.
public enum ContractPatience {
  /// What one step of a case may take: 120 seconds unless a task sets another time. The case fails after it.
  @TaskLocal public static var duration: Duration = .seconds(120)
  /// A whole case. The longest ones strike a recovery at every place.
  @TaskLocal public static var ofACase: Duration = .seconds(1800)
}
