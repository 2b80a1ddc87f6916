/// What the simulator has found and nobody has mended yet. A violation is known by what it says, so that no seed is left
/// out: the same seed failing in another way is a failure.
enum KnownFindings {
  struct Finding {
    var story: String
    /// All of them stand in the violation's message.
    var words: [String]
  }

  static let all: [Finding] = []

  /// Nil where one of the messages is of nothing known.
  static func story(of messages: [String]) -> String? {
    var story: String?
    for message in messages {
      guard let finding = all.first(where: { $0.words.allSatisfy(message.contains) }) else { return nil }
      story = story ?? finding.story
    }
    return story
  }
}
