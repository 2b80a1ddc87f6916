import Foundation

/// What the command line asks for.
struct LoadOptions: Sendable {
  var devices = 100
  var minutes = 1.0
  var rate = 50.0
  var honest: [DeviceKind] = DeviceKind.allCases
  var attacks: [AttackKind] = []
  /// 0: as the system has it.
  var files = 0
  var runs: Int?
  var seed: UInt64 = 1
  var isJSON = false
  var salvor: String

  init() {
    let own =
      (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
    salvor = URL(fileURLWithPath: own).deletingLastPathComponent().appendingPathComponent("salvor").path
  }

  /// False: there is no such option, or the value does not fit.
  mutating func set(_ name: String, _ value: String) -> Bool {
    switch (name, Int(value), Double(value)) {
    case ("--devices", let count?, _) where (0...100_000).contains(count): devices = count
    case ("--minutes", _, let count?) where count > 0 && count <= 600: minutes = count
    case ("--rate", _, let count?) where count > 0: rate = count
    case ("--files", let count?, _) where count >= 0: files = count
    case ("--runs", let count?, _) where count > 0: runs = count
    case ("--seed", let count?, _) where count >= 0: seed = UInt64(count)
    case ("--salvor", _, _): salvor = URL(fileURLWithPath: value).path
    case ("--mix", _, _):
      let names = value.split(separator: ",").map(String.init)
      honest = names.compactMap { DeviceKind(rawValue: $0) }
      attacks = names.compactMap { AttackKind(rawValue: $0) }
      guard honest.count + attacks.count == names.count, !names.isEmpty else { return false }
      // Somebody must be served while it is attacked.
      if honest.isEmpty { honest = [.idle, .small] }
    default: return false
    }
    return true
  }

  var seconds: Double { minutes * 60 }
}

/// What a device does, again and again.
enum DeviceKind: String, CaseIterable, Sendable {
  /// A new device fetches everything.
  case first
  /// Nothing to send.
  case idle
  /// One to five rows.
  case small
  /// Fifty rows, after a while.
  case away
}

/// What somebody does who means harm.
enum AttackKind: String, CaseIterable, Sendable {
  /// Connections with a head that never ends.
  case flood
  /// Bodies that unpack to much, become many values, or are large.
  case bomb
  /// Heads and bodies byte by byte, answers that nobody reads.
  case slow
  /// Uploads that are begun, filled and left.
  case stage
}

/// Numbers drawn from a seed (SplitMix64).
struct Draws: RandomNumberGenerator, Sendable {
  private var state: UInt64
  init(_ seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
