import SalvorHost
import SalvorHostCommands
import StandardModules

await Tool.run(
  modules: StandardModules.all, commands: HostCommands.all + [demoCommand, demoPlainSQLiteCommand])
