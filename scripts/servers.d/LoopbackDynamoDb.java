import java.lang.reflect.Field;
import org.eclipse.jetty.server.Connector;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.main.ServerRunner;
import software.amazon.dynamodb.services.local.server.DynamoDBProxyServer;

/**
 * DynamoDB Local on loopback only. It has no option for that and listens on every address, so its
 * listeners are told before they open. Takes the arguments of DynamoDB Local.
 */
public final class LoopbackDynamoDb {
    public static void main(String[] arguments) throws Exception {
        DynamoDBProxyServer dynamoDb = ServerRunner.createServerFromCommandLineArgs(arguments);
        Field jetty = DynamoDBProxyServer.class.getDeclaredField("server");
        jetty.setAccessible(true);
        for (Connector connector : ((Server) jetty.get(dynamoDb)).getConnectors()) {
            ((ServerConnector) connector).setHost("127.0.0.1");
        }
        dynamoDb.start();
        dynamoDb.join();
    }
}
