extension ErrorCode {
  /// What happened and what to do, in general: the table of docs/reference/errors.md. An error's own message says which thing.
  public var meaning: String {
    switch self {
    case .usage: "The command or call is not one there is. `salvor --help` lists them."
    case .configuration:
      "The configuration has mistakes. Each is listed with file, line and key path; nothing was started."
    case .unknownModule: "The configuration names a module that is not there. `salvor modules` lists them."
    case .schemaRefused:
      "The database's tables differ from the schema in a way that is not applied by itself. Each difference is named."
    case .storage: "The database gave an error that is none of the following; the message has its code."
    case .storageFull: "The disk is full. Nothing was half written; make room and go on."
    case .storageBusy: "Another program holds the database. It goes through when that one is done."
    case .storageCorrupt: "The file is not a database, or a damaged one. Put back a copy."
    case .unreachable: "The server was not reached, or the connection broke. Nothing is lost; sync again."
    case .timeout: "The other side was silent for too long (`connectTimeoutMilliseconds`, `idleTimeoutMilliseconds`)."
    case .cancelled: "The call was cancelled by its caller."
    case .protocolVersion: "The two sides speak different versions of the protocol. Update the older one."
    case .malformed: "A message is not one of the protocol, or its body is damaged. Nothing of it was used."
    case .tooLarge: "Something is larger than a limit, which the message names."
    case .notFound: "There is nothing at this path or under this ID."
    case .unsupportedEncoding: "The content coding is not offered. Use one that the message names."
    case .overloaded: "The server has more to do than it takes. Try again later."
    case .unauthenticated: "The credential is missing or wrong."
    case .forbidden: "The credential is right and does not allow this."
    case .remoteBlocked: "An administrator has blocked this remote ID."
    case .remoteOfAnother: "The remote ID is another principal's. A queue is never sent as somebody else."
    case .sessionInUse:
      "Another session of the same remote ID is under way. It ends, or is given up 30 s after it was cut."
    case .sessionUnknown: "The session has ended or was taken over. Begin again; nothing is lost."
    case .chunkMissing:
      "The upload was to be processed before all its chunks had come, and its session has ended. Begin again, and send the missing ones."
    case .historyNeeded: "The server asks the device for what it remembers. Devices answer it by themselves."
    case .uploadFailedAtServer:
      "Device and server do not have the same history. `reason` says what was found; the device must be recovered."
    case .recoveryRequired: "A recovery is required before this database synchronizes again."
    case .schemaIncompatible:
      "The schemas of device and server differ in a way that the device's database cannot follow. Each difference is named."
    case .inconsistentDownload:
      "What was downloaded does not fit together, or a table of the device's does not take it: the message names row and constraint. Nothing of it was applied; sync again."
    case .historyParted:
      "The server lost commits that this device has applied, and an earlier one is shared. Devices rewind to it by themselves."
    case .massDeletion:
      "A recovery would remove more than half of a table's rows, and stopped. `salvor recover --plan` shows it; by hand it goes through."
    case .conflictResolved:
      "Somebody has resolved this conflict version already; what was kept stands. Change the row itself."
    case .conflictUnresolvable:
      "The client's version of a conflict cannot be written any more; `reason` says why, in the words of a refusal. Change the rows first, or keep the server's."
    case .tooManyListeners:
      "As many devices listen for changes as the server allows (`eventListenersMax`). The device polls, and tries again by itself."
    case .blobMissing:
      "An upload refers to a large value that the server does not have from this principal. The device sends it and goes on by itself."
    case .blobMismatch: "What came of a large value is not what its hash names. It was thrown away; it is sent again."
    case .blobGone:
      "A large value changed at the server while it was being downloaded. The device downloads again by itself."
    case .capturePaused:
      "The application migrates its tables: nothing is synchronized until `salvor capture resume`."
    case .quota:
      "Your principal has as much on the server as one may have: the message names the limit (`principalSessionsMax`, `principalRemotesMax`, `principalStagedBytesMax`, `uploadChunksMax`). Sessions and what is staged end by themselves; else ask the server's operator."
    case .snapshotUnusable:
      "A group's snapshot is not what the server named, or its rows do not fit into one. Nothing of it was used: the same synchronization goes on by rows."
    case .schemaAhead:
      "The application's schema has renamed or dropped what the server's schema still has, or the server was put back to before tables or columns that the device has. Nothing is lost: the device synchronizes when the server has that schema, too."
    case .detached:
      "Salvor was taken out of the database: its tables are plain ones. `sync`, `register` and `subscribe` take them in again, each row as a new one."
    case .keyRefused:
      "The device's database is encrypted, and the key is missing or another one; or there is a key, and the SQLite that is linked cannot encrypt. Nothing was changed."
    case .failed: "Something failed that has no name of its own."
    case .outcomeUnknown:
      "The request belongs to an upload whose outcome is not known yet, and cannot go before it is: sync first. In the archive: the change waited in a copy that was put back, and may have been accepted before."
    case .cannotStand:
      "The change cannot be made on the tables as they are: its row is gone, or a constraint is in its way. Nothing was changed."
    case .validatorUnavailable:
      "A validator of the server's configuration could not be asked, and none of the upload was processed. Sync again later."
    }
  }
}

extension SalvorError {
  /// The way on, for a person who cannot read the catalogue: whether to wait, to sign in, to update or to ask somebody.
  public var wayOn: String {
    switch code {
    case .unreachable, .timeout, .overloaded, .sessionInUse, .storageBusy, .validatorUnavailable, .tooManyListeners,
      .quota, .blobMissing, .blobMismatch, .blobGone, .sessionUnknown, .chunkMissing, .inconsistentDownload,
      .historyNeeded, .historyParted, .cancelled, .schemaAhead:
      "Nothing is lost. Try again later; it goes on where it stopped."
    case .unauthenticated: "Sign in again. What waits to be sent stays on this device."
    case .forbidden, .remoteBlocked: "Ask the administrator of the server for the right to do this."
    case .remoteOfAnother:
      "Use a database of this user's own (client.switch(to:)). What waits here is sent when its owner signs in again."
    case .storageFull: "Make room on the disk, and try again. Nothing is lost."
    case .protocolVersion, .unsupportedEncoding, .schemaIncompatible:
      "Update the application, or ask the administrator of the server to update it."
    case .uploadFailedAtServer, .recoveryRequired, .massDeletion:
      "Choose what becomes of the changes that were not sent yet: client.recoveryPlan() shows it, client.recover(…) does it."
    case .keyRefused: "Unlock the device's database with its own key. Nothing is lost."
    case .storageCorrupt:
      "Recover the database: client.recover(…) makes it anew, and keeps the damaged file as a backup."
    case .outcomeUnknown, .cannotStand, .conflictResolved, .conflictUnresolvable:
      "Synchronize, look at the entry again, and decide then."
    default: "Report this to the maker of the application, with this message."
    }
  }
}
