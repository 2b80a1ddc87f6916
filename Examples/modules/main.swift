import SalvorHost
import SalvorHostCommands
import StandardModules

let own = [
  GentleRecovery.factory, LargerNumber.factory, ShortTexts.factory, TurnedBytes.factory, SignedTransport.factory,
  UserFolders.factory,
]
await Tool.run(modules: StandardModules.all + own, commands: HostCommands.all)
