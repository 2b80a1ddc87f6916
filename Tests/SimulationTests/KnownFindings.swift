/// What the simulator has found and nobody has mended yet, by seed and by what the violation says: the same seed failing in
/// another way is a failure, and so is one of these that fails no more.
enum KnownFindings {
  struct Finding: Sendable, CustomStringConvertible {
    var story: String
    var swarm = "all"
    var seed: UInt64
    /// All of them stand in the violation's message.
    var words: [String]

    var description: String { "\(swarm) \(seed): \(story)" }

    func tells(_ messages: [String]) -> Bool {
      !messages.isEmpty && messages.allSatisfy { message in words.allSatisfy(message.contains) }
    }
  }

  static let all: [Finding] = [
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a newer trigger of the application's ends it", swarm: "code",
      seed: 177, words: ["written without triggers", "the row has gone"]),
    Finding(
      story: "a device's delete of a row that another one had given another key comes back with a restore",
      swarm: "heal",
      seed: 8_131_628, words: ["not-healed", "d0 deleted area X'01'", "it is back"]),
    Finding(
      story: "a device that may give a row back does not", swarm: "storm", seed: 1358,
      words: ["not-healed", "visit 'k1', 0", "the server has none"]),
    Finding(
      story: "a device that may give a row back does not", swarm: "storm", seed: 1427,
      words: ["not-healed", "visit 'd19', 0", "the server has none"]),
    Finding(
      story: "an insert waits on its device for good", swarm: "storm", seed: 1480,
      words: ["stuck", "never sends insert of visit 'k4'"]),
    Finding(
      story: "a device that may give a value back does not", swarm: "storm", seed: 1592,
      words: ["not-healed", "area 6 was"]),
    Finding(
      story: "a row that the server lost goes from a device and is in no archive", swarm: "storm", seed: 1769,
      words: ["never-2-disappeared", "site 'k6'"]),
    Finding(
      story: "what was written without triggers shows as if it were settled", swarm: "storm", seed: 1787,
      words: ["never-3-unaccounted", "written without triggers", "visit 'k2'"]),
    Finding(
      story: "a device that may give a row back does not", swarm: "storm", seed: 1789,
      words: ["not-healed", "area 2 was", "the server has none"]),
    Finding(
      story: "a device that may give a row back does not", swarm: "storm", seed: 2050,
      words: ["not-healed", "visit 'd012' was", "the server has none"]),
    Finding(
      story: "a delete that was lost with a restore is not given back", swarm: "storm", seed: 2062,
      words: ["not-healed", "deleted area 'k3'", "it is back"]),
  ]

  /// Nil where the messages are of nothing known.
  static func story(of messages: [String], swarm: String, seed: UInt64) -> String? {
    all.first { $0.swarm == swarm && $0.seed == seed && $0.tells(messages) }?.story
  }
}
