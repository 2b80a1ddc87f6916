import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The disk of one machine of a simulation: what was written to its databases and not synced, and what is going to fail.
///
/// Files are real ones. For each sector that was written since its file was last synced, the disk remembers what was there
/// before: a power cut leaves any of them as it was. Whoever stands between SQLite and the system (a VFS) tells it of
/// each call, before the call is made.
public final class MachineDisk: Sendable {
  /// What goes wrong.
  public enum Fault: String, Sendable, Hashable, CaseIterable {
    /// The machine loses its power: nothing that it asks for is done any more, and what was not synced may be gone.
    case powerCut = "power-cut"
    /// There is no room: a write is refused with "disk full".
    case full
    /// A write, a truncation or a sync fails.
    case writeError = "write-error"
    /// A read fails.
    case readError = "read-error"
    /// Another process holds a lock.
    case locked
  }

  /// Strikes at the `call`-th call that it can strike, and at `times - 1` more of them.
  public struct Plan: Sendable, Hashable {
    /// What goes wrong.
    public var fault: Fault
    /// Which call is struck first, counted from 1. Calls that the fault cannot strike are not counted.
    public var call: Int
    /// How many calls in a row are struck.
    public var times: Int
  }

  /// What SQLite asks of a file.
  public enum Call: Sendable { case make, read, write, truncate, sync, delete, lock }

  /// What becomes of a call.
  public enum Answer: Sendable, Hashable { case done, dead, full, failed, locked }

  /// A file between two syncs.
  fileprivate struct Unsynced {
    /// By sector: what a power cut can bring back; shorter where the file ended within it.
    var sectors: [Int: [UInt8]] = [:]
    var size = 0
  }

  /// What a folder has forgotten after a power cut that comes before its next sync.
  fileprivate enum NameChange {
    case made(String)
    case renamed(String, to: String, over: [UInt8]?)
    case removed(String, [UInt8])

    var folder: String {
      switch self {
      case .made(let path), .renamed(let path, _, _), .removed(let path, _): FileSystem.folder(of: path)
      }
    }
  }

  fileprivate struct State {
    var generator: SeededGenerator
    var plan: Plan?
    var calls = 0
    var struck = 0
    /// Grows with each power cut: a connection from before is dead for ever.
    var life = 0
    var isDead = false
    var files: [String: Unsynced] = [:]
    /// What became of names, in order, since their folders were last synced.
    var names: [NameChange] = []
    /// The files as the power cut leaves them.
    var image: [String: [UInt8]] = [:]
  }

  /// Bytes of a sector: a power cut keeps or loses each sector as a whole.
  public static let sector = 512

  /// Of the machine's database; all of its files begin with it.
  public let path: String
  fileprivate let state: Mutex<State>

  /// Says that it has synced, and has not: as if the store did not ask for it.
  fileprivate let forgetsSyncs: Bool

  init(_ path: String, _ generator: SeededGenerator, forgetsSyncs: Bool = false) {
    self.path = path
    self.forgetsSyncs = forgetsSyncs
    state = Mutex(State(generator: generator))
  }

  // MARK: For the world

  /// What happens from now on; nil: nothing.
  func arm(_ plan: Plan?) {
    state.withLock { state in
      state.plan = plan
      (state.calls, state.struck) = (0, 0)
    }
  }

  /// How often the plan has struck.
  var struck: Int { state.withLock { $0.struck } }
  var isArmed: Bool { state.withLock { $0.plan != nil } }
  var isDead: Bool { state.withLock { $0.isDead } }

  /// The machine starts again with what the power cut has left. Nothing of before runs any more.
  func revive() throws {
    let image: [String: [UInt8]]? = state.withLock { state in
      guard state.isDead else { return nil }
      defer {
        (state.isDead, state.image, state.files, state.names) = (false, [:], [:], [])
      }
      return state.image
    }
    guard let image else { return }
    for file in Files.all(beginning: path) where image[file] == nil { Files.remove(file) }
    for (file, bytes) in image { try Files.overwrite(file, bytes) }
  }

  /// The files were put there by somebody else: nothing of them is unsynced.
  func forget() { state.withLock { ($0.files, $0.names) = ([:], []) } }

  // MARK: For the VFS

  /// Files whose pages are followed: all but what SQLite makes anew after a power cut.
  public func follows(_ file: String) -> Bool { !file.hasSuffix("-shm") }

  /// The life in which a file is opened.
  public var life: Int { state.withLock { $0.life } }

  /// What becomes of a call of a file that was opened in `life`.
  public func ask(_ call: Call, life: Int) -> Answer {
    let (answer, isCut): (Answer, Bool) = state.withLock { state in
      if state.isDead || life != state.life { return (.dead, false) }
      guard let plan = state.plan, plan.fault.strikes(call) else { return (.done, false) }
      state.calls += 1
      guard state.calls >= plan.call, state.calls < plan.call + plan.times else { return (.done, false) }
      state.struck += 1
      switch plan.fault {
      case .powerCut: return (.dead, true)
      case .full: return (.full, false)
      case .writeError, .readError: return (.failed, false)
      case .locked: return (.locked, false)
      }
    }
    if isCut { cut() }
    return answer
  }

  /// The sectors of a write that have to be known first, as they are on the disk; none where all are.
  public func unknownSectors(_ file: String, _ range: Range<Int>) -> Range<Int>? {
    guard !range.isEmpty else { return nil }
    let sectors = range.lowerBound / Self.sector..<(range.upperBound - 1) / Self.sector + 1
    return state.withLock { state in
      guard let known = state.files[file]?.sectors else { return sectors }
      return sectors.allSatisfy { known[$0] != nil } ? nil : sectors
    }
  }

  /// - Parameters:
  ///   - content: what the file has from the first sector on; it ends where the file ends.
  ///   - size: the file's.
  public func willWrite(_ file: String, _ sectors: Range<Int>, content: [UInt8], size: Int) {
    state.withLock { state in
      var unsynced = state.files[file] ?? Unsynced(size: size)
      for sector in sectors where unsynced.sectors[sector] == nil {
        let start = (sector - sectors.lowerBound) * Self.sector
        let end = min(start + Self.sector, content.count)
        unsynced.sectors[sector] = start < end ? Array(content[start..<end]) : []
      }
      state.files[file] = unsynced
    }
  }

  /// The file was synced. A power cut keeps everything that was written to it.
  public func synced(_ file: String) {
    guard !forgetsSyncs else { return }
    state.withLock { $0.files[file] = nil }
  }

  /// The file is no more.
  public func removed(_ file: String) { state.withLock { $0.files[file] = nil } }

  // MARK: The power cut

  private func cut() {
    let found = Files.all(beginning: path).sorted()
    state.withLock { state in
      state.isDead = true
      state.life += 1
      state.image = [:]
      for file in found where !file.hasSuffix("-shm") {
        guard var bytes = Files.read(file) else { continue }
        if let unsynced = state.files[file] { state.lose(unsynced, of: &bytes) }
        state.image[file] = bytes
      }
      state.loseNames()
    }
  }
}

/// Files that the product writes past SQLite.
extension MachineDisk {
  /// What becomes of a call, as an `errno`.
  func ask(_ call: FileSystem.Call) -> Int32 {
    switch ask(call.kind, life: life) {
    case .done: break
    case .full: return ENOSPC
    case .dead, .failed, .locked: return EIO
    }
    switch call {
    case .read, .makeFolder: break
    case .make(let path, let empties):
      if !Files.exists(path) {
        state.withLock { $0.names.append(.made(path)) }
      } else if empties {
        follow(path, 0..<Int.max)
      }
    case .write(let path, let range): follow(path, range)
    case .cut(let path, let size): follow(path, size..<Int.max)
    case .sync(let path): synced(path)
    case .syncFolder(let path):
      guard !forgetsSyncs else { break }
      let folder = FileSystem.folder(of: path)
      state.withLock { $0.names.removeAll { $0.folder == folder } }
    case .rename(let path, let other):
      let before = Files.read(other)
      state.withLock { state in
        guard Files.exists(path) else { return }
        state.names.append(.renamed(path, to: other, over: before))
        state.files[other] = state.files.removeValue(forKey: path)
      }
    case .remove(let path):
      guard let before = Files.read(path) else { break }
      state.withLock { state in
        state.names.append(.removed(path, before))
        state.files[path] = nil
      }
    }
    return 0
  }

  /// What is going to be written over; up to the file's end where the range ends behind it.
  private func follow(_ path: String, _ range: Range<Int>) {
    guard follows(path), let content = Files.read(path) else { return }
    let end = range.upperBound == .max ? content.count : range.upperBound
    guard range.lowerBound < end, let sectors = unknownSectors(path, range.lowerBound..<end) else { return }
    let from = min(sectors.lowerBound * Self.sector, content.count)
    let to = min(sectors.upperBound * Self.sector, content.count)
    willWrite(path, sectors, content: Array(content[from..<to]), size: content.count)
  }
}

extension FileSystem.Call {
  fileprivate var kind: MachineDisk.Call {
    switch self {
    case .read: .read
    case .make, .makeFolder: .make
    case .write: .write
    case .cut: .truncate
    case .sync, .syncFolder: .sync
    case .rename, .remove: .delete
    }
  }
}

extension MachineDisk.State {
  /// A folder keeps what became of its names up to any moment since it was synced.
  fileprivate mutating func loseNames() {
    let kept = generator.below(names.count + 1)
    for change in names[kept...].reversed() {
      switch change {
      case .made(let path): image[path] = nil
      case .renamed(let path, let other, let before):
        image[path] = image[other]
        image[other] = before
      case .removed(let path, let before): image[path] = before
      }
    }
  }

  /// Any of the sectors is as it was when the file was last synced.
  fileprivate mutating func lose(_ unsynced: MachineDisk.Unsynced, of bytes: inout [UInt8]) {
    let percent = generator.pick([0, 25, 50, 75, 100]) ?? 50
    let now = bytes.count
    var size = unsynced.size
    let longest = max(now, size)
    bytes += [UInt8](repeating: 0, count: longest - now)
    for (sector, old) in unsynced.sectors.sorted(by: { $0.key < $1.key }) {
      let place = sector * MachineDisk.sector..<min((sector + 1) * MachineDisk.sector, longest)
      guard !place.isEmpty else { continue }
      if generator.chance(percent) {
        for (offset, index) in place.enumerated() { bytes[index] = offset < old.count ? old[offset] : 0 }
      } else if place.upperBound <= now {
        size = max(size, place.upperBound)
      }
    }
    // A power cut keeps a truncation, or undoes it.
    if now < unsynced.size, generator.chance(50) { size = now }
    bytes.removeLast(longest - min(size, longest))
  }
}

extension MachineDisk.Fault {
  fileprivate func strikes(_ call: MachineDisk.Call) -> Bool {
    switch self {
    case .powerCut: [.make, .write, .truncate, .sync, .delete].contains(call)
    case .full: call == .write
    case .writeError: [.write, .truncate, .sync].contains(call)
    case .readError: call == .read
    case .locked: call == .lock
    }
  }
}
