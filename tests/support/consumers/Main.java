class Main {
    static String handle(OrderListener listener, String id, int lap) {
        try {
            listener.handle(new Order(id, 5), lap);
            return "True";
        } catch (org.springframework.amqp.AmqpRejectAndDontRequeueException refused) {
            return "False";
        }
    }
    public static void main(String[] words) {
        var orders = new Orders();
        var mail = new Mail();
        var listener = new OrderListener(orders, mail);
        System.out.println(String.join(" ", handle(listener, "1", 0), handle(listener, "2", 1),
            handle(listener, "2", 1), handle(listener, "3", 3)));
        System.out.println("booked " + String.join(" ", orders.booked));
        System.out.println("mailed " + String.join(" ", mail.sent));
    }
}
