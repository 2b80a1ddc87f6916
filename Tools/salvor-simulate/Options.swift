import SalvorSimulation

/// What the command line asks for.
struct Options {
  enum Task { case seeds, replay(UInt64), shrink(UInt64), mutants }

  var task = Task.seeds
  var first: UInt64 = 1
  var last: UInt64 = 1000
  /// Nil: until the last seed.
  var minutes: Double?
  var swarm = "all"
  /// Nil: a mutant is looked for in its own.
  var chosenSwarm: String?
  var steps = 45
  /// The numbers of the steps that are kept of a replayed history; nil: all.
  var only: Set<Int>?
  /// A replay tells which rows each step changes.
  var tellsRows = false
  var isJSON = false
  var mutants = Mutant.all + Mutant.healing
  /// How many histories run at one time; nil: as many as there are cores.
  var jobs: Int?

  static let usage = """
    Runs whole fleets in one process, from a seed: a server and its devices, faults of every kind, and checks of what must
    never be. The same seed is the same history, to the byte.

      Tools/simulate [--seeds A-B] [--minutes N] [--swarm NAME] [--steps N] [--jobs N] [--json]
      Tools/simulate --replay SEED [--only N,N,...] [--rows]
                                      shows a history step by step, with the digest of its trace; of these steps alone;
                                      and the rows of the server and of the devices that each step changed
      Tools/simulate --shrink SEED    the shortest script that still goes wrong
      Tools/simulate --mutants        faults put into the product on purpose, and the seeds it takes to find each;
                                      one of them alone: --mutant NAME; each in the swarm that finds it soonest, or in --swarm

      --seeds A-B    which histories (default 1-1000); with --minutes as many as there is time for, from A on
      --swarm NAME   what they may have in them: \(Swarm.names.keys.sorted().joined(separator: ", "))
      --steps N      the steps of each (default 45)
      --jobs N       how many run at one time (default: the cores)

    Ends with 0 where nothing was found, 1 where something was, 2 where the command is wrong.
    """

  struct Wrong: Error, CustomStringConvertible { var description: String }

  init(_ arguments: [String]) throws(Wrong) {
    var rest = arguments[...]
    func value(_ option: String) throws(Wrong) -> String {
      guard let value = rest.popFirst() else { throw Wrong(description: "\(option) wants a value") }
      return value
    }
    func number<Number: LosslessStringConvertible & Comparable>(
      _ option: String, _ text: String, from least: Number
    ) throws(Wrong) -> Number {
      guard let number = Number(text), number >= least else {
        throw Wrong(description: "\(option): \(text) is no number from \(least)")
      }
      return number
    }
    while let option = rest.popFirst() {
      switch option {
      case "--seeds":
        let parts = try value(option).split(separator: "-", omittingEmptySubsequences: false).map(String.init)
        guard parts.count <= 2, let from = parts.first else { throw Wrong(description: "--seeds wants A-B") }
        first = try number(option, from, from: 0)
        last = parts.count == 2 ? try number(option, parts[1], from: first) : first
      case "--minutes": minutes = try number(option, try value(option), from: 0.01)
      case "--swarm":
        swarm = try value(option)
        guard Swarm.names[swarm] != nil else {
          throw Wrong(
            description: "there is no swarm \(swarm); there are \(Swarm.names.keys.sorted().joined(separator: ", "))")
        }
        chosenSwarm = swarm
      case "--steps": steps = try number(option, try value(option), from: 1)
      case "--jobs": jobs = try number(option, try value(option), from: 1)
      case "--replay": task = .replay(try number(option, try value(option), from: 0))
      case "--rows": tellsRows = true
      case "--only":
        let numbers = try value(option).split(separator: ",").map { Int($0) }
        guard !numbers.isEmpty, !numbers.contains(nil) else {
          throw Wrong(description: "--only wants numbers of steps: 3,8,12")
        }
        only = Set(numbers.compactMap { $0 })
      case "--shrink": task = .shrink(try number(option, try value(option), from: 0))
      case "--mutants": task = .mutants
      case "--mutant":
        task = .mutants
        let name = try value(option)
        let known = Mutant.all + Mutant.healing
        guard let mutant = known.first(where: { $0.description == name }) else {
          throw Wrong(description: "there is no mutant \(name); there are \(known)")
        }
        mutants = [mutant]
      case "--json": isJSON = true
      default: throw Wrong(description: "there is no option \(option)")
      }
    }
  }

  var features: Set<Feature> { Self.features(of: swarm) }

  static func features(of swarm: String) -> Set<Feature> { Swarm.names[swarm] ?? [] }
}
