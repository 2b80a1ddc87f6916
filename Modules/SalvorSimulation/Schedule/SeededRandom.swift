import SalvorModel

/// Numbers that follow from a seed alone (SplitMix64).
public struct SeededGenerator: RandomNumberGenerator, Sendable {
  private var state: UInt64

  /// The same seed gives the same numbers.
  public init(seed: UInt64) { state = seed }

  /// The next 64 random bits.
  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  /// A number below `bound`; 0 where `bound` is not above 0.
  public mutating func below(_ bound: Int) -> Int { bound > 0 ? Int(next() % UInt64(bound)) : 0 }

  /// True in `percent` of 100 cases.
  public mutating func chance(_ percent: Int) -> Bool { below(100) < percent }

  /// One of `choices`; nil of none.
  public mutating func pick<Choice>(_ choices: [Choice]) -> Choice? {
    choices.isEmpty ? nil : choices[below(choices.count)]
  }

  /// One of `choices`, each as often as its weight says; nil where all weights are 0.
  public mutating func pick<Choice>(weighted choices: [(Int, Choice)]) -> Choice? {
    var place = below(choices.reduce(0) { $0 + $1.0 })
    for (weight, choice) in choices {
      if place < weight { return choice }
      place -= weight
    }
    return nil
  }

  /// A generator of its own, so that what one part draws does not move what another one draws.
  public func derived(_ label: Int) -> SeededGenerator {
    var other = SeededGenerator(seed: state ^ (UInt64(bitPattern: Int64(label)) &* 0xD6E8_FEB8_6659_FD93))
    _ = other.next()
    return other
  }
}

/// The randomness that engines and stores of a simulation draw their identifiers from.
public final class SeededRandom: RandomSource {
  private let generator: Mutex<SeededGenerator>

  /// Takes a copy: what is drawn here does not move `generator`.
  public init(_ generator: SeededGenerator) { self.generator = Mutex(generator) }

  /// `count` bytes that follow from the seed: no secrets. May be called from any thread.
  public func bytes(_ count: Int) -> [UInt8] {
    generator.withLock { generator in
      var bytes: [UInt8] = []
      bytes.reserveCapacity(count)
      while bytes.count < count {
        let word = generator.next()
        for shift in 0..<min(8, count - bytes.count) { bytes.append(UInt8(truncatingIfNeeded: word >> (8 * shift))) }
      }
      return bytes
    }
  }
}
