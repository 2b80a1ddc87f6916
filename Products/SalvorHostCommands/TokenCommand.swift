import SalvorHost
import SalvorModel
import SalvorWire
import TokenAuthentication

/// `salvor token`: a new token and the line of the token file that lets it in.
let tokenCommand = Command(
  "token", "makes an access token and the line that a token file has of it",
  discussion: """
    The token is shown once and kept nowhere: give it to the device (client.credentials.token, best by way of
    ${SALVOR_TOKEN}). The line goes into the file that server.authentication names, which is read again when it changes:
      { tokens: [ LINE ] }
    Add parameters: { region: ["EU"] } to the line to list the values that a sync parameter may take.

    A role is what the owner may do beside synchronizing: a viewer's token reads and writes the rows of its principal like every other one.
    --no-sync makes one for administration alone, as for who watches:
      salvor token grafana --role viewer --no-sync
    """,
  arguments: ["PRINCIPAL"],
  options: [
    Command.Option("administrator", "the token's owner may administrate: the same as --role administrator"),
    Command.Option(
      "role", value: "ROLE", "what the owner may do under /admin/v1: viewer reads, operator settles, administrator all"),
    Command.Option("no-sync", "with --role: for administration alone; the token synchronizes nothing"),
  ]
) { invocation in
  let principal = invocation.arguments[0]
  guard principal.contains(where: { !$0.isWhitespace }) else {
    throw SalvorError(.usage, "The token needs an owner: name the user whom it stands for, as in salvor token anna.")
  }
  var role = invocation.flags.contains("administrator") ? AdministrationRole.administrator : nil
  if let text = invocation.options["role"] {
    guard let named = AdministrationRole(rawValue: text), role == nil || role == named else {
      let known = AdministrationRole.allCases.map(\.rawValue).joined(separator: ", ")
      throw SalvorError(.usage, "--role takes one of \(known), and --administrator no other.")
    }
    role = named
  }
  let synchronizes = !invocation.flags.contains("no-sync")
  guard synchronizes || role != nil else {
    throw SalvorError(.usage, "--no-sync needs --role: without both the token may do nothing.")
  }
  let made = TokenAuthentication.make(principal: principal, role: role, synchronizes: synchronizes)
  invocation.terminal.json(["token": .string(made.token), "line": .string(made.line)])
  invocation.terminal.print("token  \(made.token)")
  invocation.terminal.print("line   \(made.line)")
  return 0
}
