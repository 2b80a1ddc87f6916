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
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it", swarm: "storm",
      seed: 1787,
      words: ["never-3-unaccounted", "written without triggers", "visit 'k2'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it", swarm: "storm",
      seed: 3041,
      words: ["never-3-unaccounted", "written without triggers", "mark 'k1'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it",
      swarm: "storm", seed: 6179, words: ["never-4-differs", "item 'k5'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it",
      swarm: "storm", seed: 6315, words: ["never-3-unaccounted", "mark 'k4'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it",
      swarm: "storm", seed: 6383, words: ["never-3-unaccounted", "area 'k6'"]),
    Finding(
      story:
        "what a program writes before a server sees that its open file was restored counts as the copy's (decision 224)",
      swarm: "in-place", seed: 9_160_680, words: ["not-healed", "in silence"]),
    Finding(
      story:
        "what a program writes before a server sees that its open file was restored counts as the copy's (decision 224)",
      swarm: "in-place", seed: 9_161_616, words: ["not-healed", "p.28.1"]),
    Finding(
      story:
        "a purged row comes back: a copy into the open file that differs from what was there by its book of purged rows alone",
      swarm: "in-place", seed: 9_161_697, words: ["purged-returned", "site X'0055'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it", swarm: "storm",
      seed: 6787, words: ["never-3-unaccounted", "written without triggers", "item 'k5'"]),
    Finding(
      story: "lost rows of a table that the restored server's schema drops are nowhere", swarm: "storm", seed: 3075,
      words: ["never-2-disappeared", "site 'k2'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it", swarm: "storm",
      seed: 3270,
      words: ["never-3-unaccounted", "written without triggers", "site 'd05'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it", swarm: "storm",
      seed: 3955,
      words: ["never-3-unaccounted", "written without triggers", "site 'k5'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it", swarm: "storm",
      seed: 4245,
      words: ["never-3-unaccounted", "written without triggers", "visit 'k0'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it", swarm: "storm",
      seed: 4198,
      words: ["never-4-differs", "area 'k2'"]),
    Finding(
      story:
        "what a program writes before a server sees that its open file was restored counts as the copy's (decision 224)",
      swarm: "in-place",
      seed: 9_151_720, words: ["not-healed", "p.29.3", "in silence"]),
    Finding(
      story:
        "what a program writes before a server sees that its open file was restored counts as the copy's (decision 224)",
      swarm: "in-place",
      seed: 9_151_850, words: ["not-healed", "p.20.1", "in silence"]),
    Finding(
      story:
        "what a program writes before a server sees that its open file was restored counts as the copy's (decision 224)",
      swarm: "in-place",
      seed: 9_152_194, words: ["not-healed", "p.41.2", "in silence"]),
    Finding(
      story:
        "what a program writes before a server sees that its open file was restored counts as the copy's (decision 224)",
      swarm: "in-place",
      seed: 9_153_708, words: ["not-healed", "in silence"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it",
      swarm: "storm", seed: 5406, words: ["unexpected-error: d2"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it",
      swarm: "storm",
      seed: 5114, words: ["never-3-unaccounted", "written without triggers", "area 'k1'"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it",
      swarm: "storm",
      seed: 5412, words: ["never-3-unaccounted", "written without triggers", "visit 2"]),
    Finding(
      story: "a row that INSERT OR FAIL leaves behind when a trigger of the application's ends it",
      swarm: "storm",
      seed: 5434, words: ["never-3-unaccounted", "written without triggers", "area 'k1'"]),
  ]

  /// Nil where the messages are of nothing known.
  static func story(of messages: [String], swarm: String, seed: UInt64) -> String? {
    all.first { $0.swarm == swarm && $0.seed == seed && $0.tells(messages) }?.story
  }
}
